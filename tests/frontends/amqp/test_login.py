from __future__ import annotations

import pathlib
import socket
import ssl

import pytest
from pamqp import commands

from tests.cli.certificates import make_certificate
from tests.frontends.amqp.talk import Closed, Node, Talk

AMQPLAIN = "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism {}. For details see the broker logfile."


def test_what_the_server_says_of_itself(node: Node) -> None:
    client = node.talk()
    said = client.start.server_properties
    assert said["product"] == "RabbitMQ"
    assert said["version"].startswith("4.")
    assert {"platform", "copyright", "information", "cluster_name", "trilogue"} <= said.keys()
    assert said["capabilities"] == dict.fromkeys((
        "authentication_failure_close", "basic.nack", "connection.blocked", "consumer_cancel_notify", "consumer_priorities", "direct_reply_to",
        "exchange_exchange_bindings", "per_consumer_qos", "publisher_confirms"), True)
    assert client.start.mechanisms == "PLAIN AMQPLAIN"
    assert (client.tune.channel_max, client.tune.frame_max, client.tune.heartbeat) == (2_047, 131_072, 60)


def test_amqplain(node: Node) -> None:
    node.open(mechanism="AMQPLAIN", response=AMQPLAIN).sync()
    with pytest.raises(Closed) as raised:
        node.talk(mechanism="AMQPLAIN", response=AMQPLAIN.replace("\x05guest\x08", "\x05other\x08"))
    assert (raised.value.code, raised.value.text) == (403, REFUSED.format("AMQPLAIN"))
    with pytest.raises(Closed, match="502"):
        node.talk(mechanism="AMQPLAIN", response="\x05LOGINS\x00\x00\x7f\x05guest")


def test_a_wrong_password(node: Node) -> None:
    with pytest.raises(Closed) as raised:
        node.talk(password="wrong")
    assert (raised.value.code, raised.value.connection, raised.value.text) == (403, True, REFUSED.format("PLAIN"))
    with pytest.raises((EOFError, ConnectionResetError)):        # a client that cannot be told is only cut off
        node.talk(password="wrong", capabilities={})
    with pytest.raises(Closed, match="530 NOT_ALLOWED - unsupported authentication mechanism 'NONSENSE'"):
        node.talk(mechanism="NONSENSE")
    with pytest.raises(Closed, match="502"):
        node.talk(response="guest")


def test_vhosts(node: Node, q: str) -> None:
    with pytest.raises(Closed) as raised:
        node.talk(vhost="nowhere")
    assert (raised.value.code, raised.value.text) == (530, "NOT_ALLOWED - vhost 'nowhere' not found")
    node.administer("plan_vhost", q)
    with pytest.raises(Closed) as raised:
        node.talk(vhost=q)
    assert (raised.value.code, raised.value.text) == (530, f"NOT_ALLOWED - access to vhost '{q}' refused for user 'guest'")
    node.administer("plan_permission", q, "guest", ".*", ".*", ".*")
    there, here = node.open(vhost=q), node.open()
    there.declare("only-there")
    with pytest.raises(Closed, match="404 NOT_FOUND - no queue 'only-there' in vhost '/'"):
        here.declare("only-there", passive=True)


def test_limits(node: Node, q: str) -> None:
    node.administer("plan_vhost", q)
    node.administer("plan_permission", q, "guest", ".*", ".*", ".*")
    node.administer("plan_vhost_limits", q, {"max-connections": 1, "max-queues": 1})
    client = node.open(vhost=q)
    with pytest.raises(Closed, match=r"530 NOT_ALLOWED - access to vhost .* connection limit \(1\) is reached"):
        node.talk(vhost=q)
    client.declare("one")
    with pytest.raises(Closed, match=r"406 PRECONDITION_FAILED - cannot declare queue 'two' .*queue limit in vhost .*\(1\) is reached"):
        client.declare("two")
    node.user("few")
    node.administer("plan_user_limits", "few", {"max-connections": 1, "max-channels": 2})
    few = node.open(user="few", password="few")
    with pytest.raises(Closed, match=r"530 NOT_ALLOWED - connection refused for user 'few'.*\(1\)"):
        node.talk(user="few", password="few")
    few.channel(2)
    with pytest.raises(Closed, match="530 NOT_ALLOWED - number of channels opened for user 'few'"):
        few.channel(3)


def test_the_tuned_numbers_hold(node: Node) -> None:
    client = node.talk()
    with pytest.raises(Closed, match=r"530 NOT_ALLOWED - number of channels opened .* channel_max \(2047\)"):
        client.channel(2_048)
    for tune in (commands.Connection.TuneOk(2_047, 100, 0), commands.Connection.TuneOk(2_047, 1 << 20, 0), commands.Connection.TuneOk(60_000, 0, 0)):
        client = node.talk(login=False)
        client.socket.sendall(b"AMQP\x00\x00\x09\x01")
        client.hear(commands.Connection.Start, 0)
        client.say(commands.Connection.StartOk({"capabilities": {}}, "PLAIN", "\0guest\0guest", "en_US"), 0)
        client.hear(commands.Connection.Tune, 0)
        client.say(tune, 0)
        assert client.closed(0).code == 530


def test_a_new_secret_is_checked(node: Node) -> None:
    client = node.open()
    client.ask(commands.Connection.UpdateSecret("guest", "renewal"), commands.Connection.UpdateSecretOk, 0)
    client.sync()
    client.say(commands.Connection.UpdateSecret("wrong", "renewal"), 0)
    error = client.closed(0)
    assert (error.code, error.text) == (530, "NOT_ALLOWED - New secret was refused by one of the backends")


def test_heartbeats_both_ways(node: Node) -> None:
    client = node.open(heartbeat=60)
    session = node.sessions()[-1]
    node.call(session.beat)
    client.socket.sendall(b"\x08\x00\x00\x00\x00\x00\x00\xce")
    client.sync()
    assert client.heartbeats == 1
    for _ in range(5):                                          # two intervals without a sign of life
        node.call(session.beat)
    with pytest.raises((EOFError, ConnectionResetError)):
        client.next()


def test_another_protocol_is_told_ours(node: Node) -> None:
    host, _, port = node.node.addresses["amqp"].rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b"AMQP\x00\x00\x09\x01"


# ------------------------------------------------------------------------------------------------ certificates

def tls_client(certificate: tuple[pathlib.Path, pathlib.Path] | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def secure(tmp_path: pathlib.Path) -> list[str]:
    cert, key = make_certificate(tmp_path, "server")
    ca, _ = make_certificate(tmp_path, "alice")
    return [f'listeners.amqp.tls={{cert="{cert}", key="{key}", client_ca="{ca}", client_cert="optional"}}']


def test_a_certificate_names_its_user(tmp_path: pathlib.Path, secure: list[str]) -> None:
    with Node(tmp_path, secure) as node:
        node.user("alice.test")
        alice = tls_client((tmp_path / "alice.pem", tmp_path / "alice.key"))
        client = node.open(mechanism="EXTERNAL", response="", tls=alice)
        assert client.start.mechanisms == "PLAIN AMQPLAIN EXTERNAL"
        client.declare("q")
        client.publish("", "q", b"x", user_id="alice.test")
        message = client.get("q")
        assert message is not None and message.properties.user_id == "alice.test"
        plain = Talk(node.node.addresses["amqp"], tls=tls_client())                  # a password does as well
        assert plain.start.mechanisms == "PLAIN AMQPLAIN"
        plain.leave()
        with pytest.raises(Closed) as raised:
            node.talk(mechanism="EXTERNAL", response="", tls=tls_client())
        assert (raised.value.code, raised.value.text) == (403, REFUSED.format("EXTERNAL"))
        node.administer("plan_delete_user", "alice.test")
        with pytest.raises(Closed, match="403"):
            node.talk(mechanism="EXTERNAL", response="", tls=alice)


def test_the_whole_name_of_a_certificate(tmp_path: pathlib.Path, secure: list[str]) -> None:
    with Node(tmp_path, [*secure, 'listeners.amqp.options={certificate_login_from="distinguished_name"}']) as node:
        node.user("CN=alice.test")
        node.open(mechanism="EXTERNAL", response="", tls=tls_client((tmp_path / "alice.pem", tmp_path / "alice.key"))).sync()
