"""A listener's TLS context, made at start and brought up to date by a reload: new handshakes then use the new certificate."""

from __future__ import annotations

import ssl

from trilogue.config.model import Tls
from trilogue.core.errors import OperatingError

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_CERTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(OperatingError):
    """A certificate or key cannot be used."""

    retry = False


def context_of(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Off by default on Python 3.11: a client could have us renegotiate for ever.
    context.options |= ssl.OP_NO_RENEGOTIATION
    renew(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: Tls) -> None:
    """`TlsError` leaves the context as it was, as far as certificate and key are concerned."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, tls.key_password or None)
        context.load_cert_chain(tls.cert, tls.key, tls.key_password or None)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"certificate {tls.cert} with key {tls.key} cannot be used: {error}") from error
    context.verify_mode = CLIENT_CERTS[tls.client_cert]
    context.minimum_version = VERSIONS[tls.version_min]
