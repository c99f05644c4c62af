from __future__ import annotations

import pathlib
import resource
from collections.abc import Iterator

import pytest

from tests.cli.server import SETTINGS, Client, Embedded
from trilogue.core.errors import Corrupt
from trilogue.declare import DefinitionError


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[Embedded]:
    with Embedded(tmp_path) as node:
        yield node


def consumer(node: Embedded, queue: str, prefetch: int = 10) -> Client:
    client = node.client()
    assert client.ask(f"SUB {queue} {prefetch}") == "OK"
    return client


def ended(client: Client) -> bool:
    """Did the server close? Lines that it sent before do not matter."""
    try:
        while client.file.readline():
            pass
    except ConnectionResetError:
        pass
    return True


# ------------------------------------------------------------------------------------------------ messages

def test_publish_consume_acknowledge(node: Embedded) -> None:
    client = node.client()
    assert client.ask("DECLARE q durable") == "OK"
    client.say("PUB - q one", "PUB - q two", "PUB - q three")
    assert client.hear_upto("OK 3")[-1] == "OK 3"
    taker = consumer(node, "q", 2)
    assert [taker.hear(), taker.hear()] == ["MSG 1 0 one", "MSG 2 0 two"]
    taker.say("ACK 2")
    assert taker.hear() == "MSG 3 0 three"
    taker.say("ACK 1", "ACK 3")
    node.until(lambda: node.queue("q").waiting() == 0)
    assert node.call(lambda: int(node.queue("q").settled)) == 3


def test_what_a_lost_client_held_goes_to_the_next(node: Embedded) -> None:
    client = node.client()
    assert client.ask("DECLARE q durable") == "OK"
    first = consumer(node, "q")
    client.say("PUB - q one", "PUB - q two")
    assert [first.hear(), first.hear()] == ["MSG 1 0 one", "MSG 2 0 two"]
    first.say("ACK 1")
    node.until(lambda: node.queue("q").settled == 1)
    first.close()
    second = consumer(node, "q")
    assert second.hear() == "MSG 1 1 two"
    second.say("NACK 1")
    assert second.hear() == "MSG 2 1 two"
    second.say("REJECT 2")
    node.until(lambda: node.queue("q").waiting() == 0)


def test_a_restart_keeps_what_is_durable(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path) as node:
        client = node.client()
        for line in ("DECLARE q durable", "DECLARE passing", "TOPIC t 2", "BIND amq.topic q a.#"):
            assert client.ask(line) == "OK"
        client.say("PUB amq.topic a.b one", "PUB - passing two", "PUB - t three")
        client.hear_upto("OK 3")
        node.stop()
        node.start()
        client = consumer(node, "q")
        assert client.hear() == "MSG 1 0 one"
        assert "no queue 'passing'" in client.ask("SUB passing")
        assert node.call(lambda: sum(int(partition.next) for partition in node.broker.topics[node.broker.catalog.destination("/", "t").id])) == 1
        assert client.ask("PUB amq.topic a.c four") == "MSG 2 0 four"


def test_topics_are_read_from_any_offset(node: Embedded) -> None:
    client = node.client()
    assert client.ask("TOPIC t") == "OK"
    client.say(*(f"PUB - t {k}" for k in range(5)))
    client.hear_upto("OK 5")
    assert client.ask("READ t 3") == "OK"
    assert [client.hear(), client.hear()] == ["REC 3 3", "REC 4 4"]
    assert client.ask("PUB - t 5").split()[0] in ("OK", "REC")
    assert client.hear().split()[0] in ("OK", "REC")


def test_live_subscribers_hear_what_passes_by(node: Embedded) -> None:
    client = node.client()
    assert client.ask("LIVE a/+/c") == "OK"
    other = node.client()
    other.say("PUB amq.topic a.b.c yes", "PUB amq.topic a.b.d no", "PUB amq.topic a.x.c again")
    assert [client.hear(), client.hear()] == ["TOP a.b.c yes", "TOP a.x.c again"]
    client.close()
    node.until(lambda: not node.broker.subscribers)
    assert other.ask("PUB amq.topic a.b.c nobody").startswith("OK")


# ------------------------------------------------------------------------------------------------ flow

def test_a_slow_consumer_is_fed_no_further_than_its_buffer(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["limits.connection.consumer_buffer_bytes=64 KiB"]) as node:
        client = node.client()
        assert client.ask("DECLARE q durable") == "OK"
        count, body = 1_500, "x" * 10_000
        slow = Client(node.node.addresses["line"], receive_bytes=16_384)
        assert slow.ask(f"SUB q {count}") == "OK"
        for k in range(count):
            client.say(f"PUB - q {k}-{body}")
        client.hear_upto(f"OK {count}")
        node.until(lambda: any(not one.writable for one in node.node.frontends["line"].peers))
        held = next(one for one in node.connections() if not one.writable)
        assert node.call(lambda: held.transport.get_write_buffer_size() + len(held.w)) < 64 * 1024 + 2 * len(body) + 100
        assert node.call(lambda: int(node.queue("q").ready())) > 0
        numbers = [int(slow.hear().split(" ")[3].partition("-")[0]) for _ in range(count)]
        assert numbers == list(range(count))


def test_a_held_publisher_is_not_read(node: Embedded) -> None:
    client = node.client()
    assert client.ask("DECLARE q durable") == "OK"
    node.call(node.broker.flusher.block, "a test")
    assert client.ask("PUB - q 1") == "OK 1"
    connection, = node.connections()
    assert not node.call(lambda: connection.reading)
    client.say(*(f"PUB - q {k}" for k in range(2, 1_000)))
    bystander = node.client()
    assert bystander.ask("DECLARE other durable") == "OK"       # who did not publish is not held
    assert node.call(lambda: int(node.broker.received)) == 1
    node.call(node.broker.flusher.unblock)
    client.hear_upto("OK 999")
    assert node.call(lambda: int(node.queue("q").ready())) == 999
    assert node.call(lambda: (connection.reading, connection.parked, int(connection.parked_bytes))) == (True, [], 0)


def test_a_held_publisher_can_still_acknowledge(tmp_path: pathlib.Path) -> None:
    """RULES 30: workers that consume and publish on one connection must be able to ack, or a full disk never heals."""
    with Embedded(tmp_path, ["limits.connection.parked_bytes_max=4 KiB"]) as node:
        client = node.client()
        for line in ("DECLARE work durable", "DECLARE results durable"):
            assert client.ask(line) == "OK"
        assert client.ask("PUB - work job") == "OK 1"
        assert client.ask("SUB work") == "OK"
        assert client.hear() == "MSG 1 0 job"
        node.call(node.broker.flusher.block, "a test")
        connection, = node.connections()
        client.say(*(f"PUB - results {k}" for k in range(10)))
        node.until(lambda: len(connection.parked) == 9)          # the first one was taken: it is what got the publisher held
        assert node.call(lambda: connection.reading)
        client.say(f"PUB - results {'x' * 5_000}")
        node.until(lambda: not connection.reading)               # enough is parked
        assert node.call(lambda: len(connection.parked)) == 10
        client.say("ACK 1")
        node.call(node.broker.flusher.unblock)
        node.until(lambda: node.queue("work").waiting() == 0)
        client.hear_upto("OK 12")
        assert node.call(lambda: int(node.queue("results").ready())) == 11


def test_an_acknowledgement_is_taken_while_publishes_wait(node: Embedded) -> None:
    client = node.client()
    for line in ("DECLARE work durable", "DECLARE results durable"):
        assert client.ask(line) == "OK"
    assert client.ask("PUB - work job") == "OK 1"
    assert client.ask("SUB work") == "OK"
    assert client.hear() == "MSG 1 0 job"
    node.call(node.broker.flusher.block, "a test")
    client.say("PUB - results 1", "PUB - results 2", "ACK 1")
    node.until(lambda: node.queue("work").settled == 1)
    connection, = node.connections()
    node.until(lambda: not connection.reading)                   # nothing left to acknowledge, so no reason to read on
    assert node.call(lambda: len(connection.parked)) == 1
    node.call(node.broker.flusher.unblock)
    client.hear_upto("OK 3")


def test_a_delivery_makes_a_held_connection_readable_again(node: Embedded) -> None:
    client = node.client()
    for line in ("DECLARE work durable", "DECLARE results durable"):
        assert client.ask(line) == "OK"
    assert client.ask("SUB work") == "OK"
    node.call(node.broker.flusher.block, "a test")
    assert client.ask("PUB - results 1") == "OK 1"
    held, = node.connections()
    assert not node.call(lambda: held.reading)
    other = node.client()
    assert other.ask("PUB - work job") == "OK 1"
    assert client.hear() == "MSG 1 0 job"
    client.say("ACK 1")
    node.until(lambda: node.queue("work").settled == 1)


def test_a_held_client_may_leave(node: Embedded) -> None:
    client = node.client()
    assert client.ask("DECLARE q durable") == "OK"
    node.call(node.broker.flusher.block, "a test")
    assert client.ask("PUB - q 1") == "OK 1"
    connection, = node.connections()
    node.call(connection.abort)
    node.until(lambda: not node.broker.flusher.held)
    node.call(node.broker.flusher.unblock)
    assert node.client().ask("PUB - q 2") == "OK 1"


def test_a_stop_confirms_what_was_sent_before(node: Embedded) -> None:
    client = node.client()
    assert client.ask("DECLARE q durable") == "OK"

    def publish_and_stop() -> None:
        connection, = node.node.frontends["line"].peers
        connection.received(b"PUB - q one\nPUB - q two\n")
        node.node.frontends["line"].drain()
        connection.data_received(b"")

    node.call(publish_and_stop)
    assert client.hear_upto("OK 2")
    assert client.hear() == ""
    node.stop()
    node.start()
    assert node.call(lambda: int(node.queue("q").ready())) == 2


def test_somebody_who_does_not_read_is_cut_off_in_the_end(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["node.drain_timeout_ms=50"]) as node:
        client = node.client()
        assert client.ask("DECLARE q durable") == "OK"
        slow = Client(node.node.addresses["line"], receive_bytes=16_384)
        assert slow.ask("SUB q 1000000") == "OK"
        client.say(*(f"PUB - q {'x' * 100_000}" for _ in range(100)))
        node.until(lambda: any(not one.writable for one in node.node.frontends["line"].peers))
        node.stop()
        assert node.connections() == []
        node.start()
        assert node.call(lambda: int(node.queue("q").ready())) > 0


# ------------------------------------------------------------------------------------------------ strangers

def test_bad_input_hurts_nobody(node: Embedded) -> None:
    client = node.client()
    for line in ("NONSENSE", "", "PUB", "PUB - q", "SUB", "ACK x", "ACK 99", "DECLARE", "SUB missing x", "__init__", "LOGIN guest guest"):
        assert client.ask(line).startswith("ERR - "), line
    client.socket.sendall(b"PUB - q \xff\xfe\nPUB \x00 \x00 \x00\n")
    assert client.hear().startswith("ERR - ")
    assert client.hear().startswith("ERR - ")
    assert client.ask("DECLARE q durable") == "OK"
    assert node.call(lambda: int(node.broker.received)) == 0


def test_nothing_before_login(node: Embedded) -> None:
    client = node.client(login=False)
    assert client.ask("DECLARE q") == "ERR - what?"
    assert client.ask("LOGIN guest wrong") == "ERR login refused for user 'guest'"
    assert ended(client)
    node.until(lambda: node.broker.limits.connections == 0)


def test_commands_may_follow_a_login_at_once(node: Embedded) -> None:
    """Once with a hash to be computed, once with a password that is remembered."""
    for name in ("first", "second"):
        client = node.client(login=False)
        client.say("LOGIN guest guest", f"DECLARE {name} durable", f"PUB - {name} x")
        assert sorted(client.hear() for _ in range(3)) == ["OK", "OK", "OK 1"]


def test_little_is_kept_for_strangers(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["limits.connection.login_bytes_max=1024"]) as node:
        stranger = node.client(login=False)
        stranger.socket.sendall(b"x" * 2_000)
        assert ended(stranger)
        client = node.client()
        assert client.ask("DECLARE q durable") == "OK"
        assert client.ask(f"PUB - q {'x' * 5_000}") == "OK 1"


def test_strangers_must_hurry(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["limits.connection.login_timeout_ms=2000"]) as node:
        friend = node.client()
        assert ended(node.client(login=False))
        assert friend.ask("DECLARE q durable") == "OK"


def test_there_may_only_be_so_many_strangers(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["limits.logins_pending_max=1"]) as node:
        first = node.client(login=False)
        node.until(lambda: node.broker.limits.unauthenticated == 1)
        second = node.client(login=False)
        assert second.hear() == "ERR limit of connections without login (1) is reached"
        assert ended(second)
        assert first.ask("LOGIN guest guest") == "OK"
        assert node.client().ask("DECLARE q durable") == "OK"


def test_descriptors_are_left_for_log_files(node: Embedded) -> None:
    friend = node.client()
    most = node.call(lambda: int(node.node.door.descriptors_max))
    assert 0 < most <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 64
    node.node.door.descriptors_max = 1
    stranger = node.client(login=False)
    assert stranger.hear() == "ERR descriptor limit: connections may use 1"
    assert ended(stranger)
    assert friend.ask("DECLARE q durable") == "OK"
    node.node.door.descriptors_max = most
    another = node.client()
    assert another.ask("DECLARE q durable") == "OK"
    assert node.call(lambda: (int(node.node.door.refused), int(node.broker.limits.connections))) == (1, 2)


# ------------------------------------------------------------------------------------------------ configuration

def test_definitions_are_applied_again_and_again(tmp_path: pathlib.Path) -> None:
    settings = ['vhosts=[{name="v", queues_max=5}]', 'users=[{name="u", password="p", tags=["monitoring"]}]',
                'permissions=[{user="u", vhost="v", read=".*"}]', 'exchanges=[{name="x", vhost="v", type="fanout"}]',
                'queues=[{name="q", vhost="v", arguments={x-max-length=9}}]', 'topics=[{name="t", vhost="v", partitions=2, retention_ms=5000}]',
                'bindings=[{source="x", destination="t", destination_type="topic", vhost="v"}]',
                'policies=[{name="p", vhost="v", pattern="^q", definition={message-ttl=7}}]']
    with Embedded(tmp_path, settings) as node:
        catalog = node.broker.catalog
        version = node.call(lambda: int(catalog.version))
        assert node.call(lambda: catalog.destination("v", "q").effective.message_ttl_ms) == 7
        assert node.call(lambda: len(catalog.destination("v", "t").partitions)) == 2
        assert node.call(lambda: node.broker.router.route("v", "x", b"", {})) == [node.call(lambda: catalog.destination("v", "t").target())]
        node.call(node.node.reload, node.config())
        assert node.call(lambda: int(catalog.version)) == version
        node.call(node.node.reload, node.config(['topics=[{name="t", vhost="v", partitions=3}]']))
        assert node.call(lambda: len(catalog.destination("v", "t").partitions)) == 3
        with pytest.raises(DefinitionError, match="inequivalent arg"):
            node.call(node.node.reload, node.config(['queues=[{name="q", vhost="v", durable=false}]']))
        node.stop()
        node.start()
        assert node.call(lambda: len(node.broker.catalog.destination("v", "t").partitions)) == 3


def test_guest_goes_when_the_configuration_says_so(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path) as node:
        assert node.call(lambda: node.broker.catalog.users["guest"].tags) == ["administrator"]
        node.settings.append("auth.guest=false")
        node.stop()
        node.start()
        assert node.client(login=False).ask("LOGIN guest guest").startswith("ERR")
        node.settings.append("auth.guest=true")
        node.stop()
        node.start()
        assert node.call(lambda: list(node.broker.catalog.users)) == []     # made once, not again


def test_fewer_shards_than_before_lose_no_queue(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["storage.shards=8"]) as node:
        client = node.client()
        for k in range(20):
            assert client.ask(f"DECLARE q{k} durable") == "OK"
        client.say(*(f"PUB - q{k} x" for k in range(20)))
        client.hear_upto("OK 20")
        node.settings.append("storage.shards=1")
        node.stop()
        node.start()
        assert node.call(lambda: [int(node.queue(f"q{k}").ready()) for k in range(20)]) == [1] * 20


def test_time_does_not_go_back_over_a_restart(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path) as node:
        node.call(node.node.scheduler.raise_to, 4_000_000_000_000)
        client = node.client()
        assert client.ask("DECLARE q durable") == "OK"
        node.stop()
        node.start()
        assert node.call(node.node.scheduler.now_ms) >= 4_000_000_000_000


def test_a_failed_start_lets_go_of_the_directory(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path) as node:
        node.stop()
        log = tmp_path / "data" / "logs" / f"{1:016x}" / f"{0:020d}.log"
        whole = log.read_bytes()
        log.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with pytest.raises(Corrupt):
            node.start()
        log.write_bytes(whole)
        node.start()


def test_a_listener_without_its_frontend_is_skipped(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["listeners.replication.bind=127.0.0.1:0"]) as node:
        assert sorted(node.node.addresses) == ["http", "line"]
    assert not any("replication" in setting for setting in SETTINGS)
