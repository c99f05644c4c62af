"""The AMQP 0-9-1 frontend: one session per connection.

Of its listener's `options` it knows `consumer_timeout_ms` (how long a delivery may stay unanswered, 30 minutes unless the queue says
otherwise; 0: for ever) and `certificate_login_from` (`common_name` or `distinguished_name`: what in a client's certificate names the user).
"""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.frontend import Peer, StreamFrontend
from trilogue.core.message import ORIGIN_AMQP
from trilogue.core.ports import Lens
from trilogue.frontends.amqp.codec import body_size, properties_of
from trilogue.frontends.amqp.fields import ESCAPE
from trilogue.frontends.amqp.session import AmqpSession

DUPLICATE_HEADER = "x-deduplication-header"


class AmqpLens(Lens):
    def headers(self, origin: i64, span: bytes) -> dict[str, object]:
        found: dict[str, object] = dict(properties_of(span).headers or {})
        return found

    def is_empty(self, origin: i64, span: bytes) -> bool:
        return body_size(span) == 0

    def keys(self, origin: i64, span: bytes) -> list[bytes]:
        more = (properties_of(span).headers or {}).get("CC", [])
        return [key.encode("utf-8", ESCAPE) for key in more if isinstance(key, str)] if isinstance(more, list) else []

    def identity(self, origin: i64, span: bytes, header: str) -> bytes:
        properties = properties_of(span)
        headers = properties.headers or {}
        value = headers.get(header or DUPLICATE_HEADER)
        if value is None:
            value = properties.message_id
        return b"" if value is None else str(value).encode("utf-8", ESCAPE)


class AmqpFrontend(StreamFrontend):
    @staticmethod
    def lenses() -> list[tuple[int, Lens]]:
        return [(ORIGIN_AMQP, AmqpLens())]

    def connection(self) -> Peer:
        return AmqpSession(self)
