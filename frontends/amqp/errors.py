"""From the core's errors to AMQP's reply codes: one table. A code closes the channel, or (from 500 on, and 530) the connection."""

from __future__ import annotations

from typing import Final

from trilogue.core import errors

REPLY: Final[dict[type[errors.BrokerError], int]] = {
    errors.NotFound: 404,
    errors.AccessRefused: 403,
    errors.AuthenticationFailed: 403,
    errors.ResourceLocked: 405,
    errors.PreconditionFailed: 406,
    errors.InvalidArgument: 406,
    errors.LimitExceeded: 406,
    errors.NotSupported: 540,
    errors.Unavailable: 541,
    errors.StoreError: 541,
    errors.Corrupt: 541,
    errors.FormatTooNew: 541,
    errors.DataDirInUse: 541,
}

NAMES: Final = {
    311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 320: "CONNECTION_FORCED", 403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR", 530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}


def reply_code(error: errors.BrokerError) -> int:
    for kind in type(error).__mro__:
        code = REPLY.get(kind)
        if code is not None:
            return code
    return 541


def closes_connection(code: int) -> bool:
    return code >= 500 or code == 320


def reply_text(code: int, text: str) -> str:
    return f"{NAMES.get(code, 'INTERNAL_ERROR')} - {text}"
