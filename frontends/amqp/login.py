"""Who a client says it is: the mechanisms that `connection.start-ok` may name, and `connection.update-secret`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import i64
from pamqp import commands

from trilogue.core.access import Login
from trilogue.core.errors import AuthenticationFailed, BrokerError
from trilogue.core.frontend import LoginWaiter
from trilogue.frontends.amqp.codec import ProtocolError, check_table, encode_method
from trilogue.frontends.amqp.fields import decode_table

if TYPE_CHECKING:
    from trilogue.frontends.amqp.session import AmqpSession

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"
UPDATE_SECRET: Final = 10 << 16 | 70


def mechanisms(session: AmqpSession) -> str:
    """What is offered: a certificate counts only where the listener has verified one."""
    names = f"{PLAIN} {AMQPLAIN}"
    return f"{names} {EXTERNAL}" if certified_name(session) else names


def log_in(session: AmqpSession, mechanism: str, response: bytes) -> None:
    """Begin to check a `start-ok`; the session is told how it went."""
    if mechanism == PLAIN:
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise ProtocolError(502, "a PLAIN response has three parts")
        session.check_password(parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace"))
    elif mechanism == AMQPLAIN:
        size: i64 = len(response)
        check_table(response, 0, size, 1)
        table = decode_table(response, 0, size)
        session.check_password(text(table.get("LOGIN", "")), text(table.get("PASSWORD", "")))
    elif mechanism == EXTERNAL:
        log_in_certified(session)
    else:
        raise ProtocolError(530, f"unsupported authentication mechanism '{mechanism}'")


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def log_in_certified(session: AmqpSession) -> None:
    name = certified_name(session)
    try:
        if not name:
            raise AuthenticationFailed("no certificate names a user")
        session.known(session.context.broker.access.certified(name, session.loopback))
    except BrokerError as error:
        session.refuse_login(error)


def certified_name(session: AmqpSession) -> str:
    """The common name in the client's certificate, or its whole distinguished name if the listener's options say so; empty: no certificate."""
    certificate = session.transport.get_extra_info("peercert")
    if not certificate:
        return ""
    parts: list[tuple[str, str]] = []
    for group in certificate.get("subject", ()):
        parts.extend(group)
    if session.context.options.get("certificate_login_from") == "distinguished_name":
        parts.reverse()
        return ",".join([f"{SHORT_NAMES.get(key, key)}={value}" for key, value in parts])
    names = [value for key, value in parts if key == "commonName"]
    return names[0] if names else ""


SHORT_NAMES: Final = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C", "stateOrProvinceName": "ST",
    "localityName": "L", "domainComponent": "DC",
}


class SecretChecked(LoginWaiter):
    """A client on a long connection shows new credentials: they must be right, or the connection ends."""

    def __init__(self, session: AmqpSession) -> None:
        self.session: AmqpSession = session

    def verified(self, login: Login) -> None:
        session = self.session
        if session.closed:
            return
        try:
            identity = session.context.broker.access.finish(login)
        except BrokerError:
            session.fail(530, "New secret was refused by one of the backends", UPDATE_SECRET)
            return
        if session.session is not None:
            session.session.identity.tags = identity.tags
        session.resume(encode_method(commands.Connection.UpdateSecretOk(), 0))


def update_secret(session: AmqpSession, secret: str) -> None:
    """Nothing else is looked at until the new secret is checked."""
    identity = session.identity
    assert identity is not None
    session.waiting = True
    login = session.context.broker.access.prepare(identity.user, secret, session.loopback)
    waiter = SecretChecked(session)
    if login.remembered:
        waiter.verified(login)
    else:
        session.context.verifier.verify(login, waiter)
