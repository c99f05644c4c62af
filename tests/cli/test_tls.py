from __future__ import annotations

import pathlib
import socket
import ssl

import pytest

from tests.cli.certificates import make_certificate
from tests.cli.server import PATIENCE_S, Embedded
from trilogue.config.model import Tls
from trilogue.tls import TlsError, context_of


def test_tls(tmp_path: pathlib.Path) -> None:
    cert, key = make_certificate(tmp_path, "old")
    settings = [f"listeners.line.tls.cert={cert}", f"listeners.line.tls.key={key}"]
    with Embedded(tmp_path, settings) as node:
        assert common_name(node) == "old"
        make_certificate(tmp_path, "new", "old")
        node.call(node.node.reload, node.config())
        assert common_name(node) == "new"
        plain = node.client(login=False)
        plain.socket.sendall(b"LOGIN guest guest\n" * 20)
        assert plain.file.read() == b""


def common_name(node: Embedded) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = node.node.addresses["line"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as raw, context.wrap_socket(raw) as secure:
        secure.sendall(b"LOGIN guest guest\n")
        assert secure.recv(100) == b"OK\n"
        certificate = secure.getpeercert(binary_form=True)
    assert certificate is not None
    return "new" if b"new.test" in certificate else "old"


def test_what_cannot_be_used_is_named(tmp_path: pathlib.Path) -> None:
    cert, _ = make_certificate(tmp_path, "one")
    _, other = make_certificate(tmp_path, "two")
    with pytest.raises(TlsError, match=f"certificate {cert} with key {other} cannot be used"):
        context_of(Tls(cert=str(cert), key=str(other)))


def test_defaults_are_strict(tmp_path: pathlib.Path) -> None:
    cert, key = make_certificate(tmp_path, "one")
    context = context_of(Tls(cert=str(cert), key=str(key), client_ca=str(cert), client_cert="required", version_min="1.3"))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context_of(Tls(cert=str(cert), key=str(key))).minimum_version == ssl.TLSVersion.TLSv1_2
