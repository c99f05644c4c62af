"""The disk is full. Publishers are held, nothing is torn, consumers go on, and when there is room again everything works within seconds, without a
restart. The data directory is a small tmpfs in a mount namespace of the server's own, so that no privilege is needed.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import socket
import time

import pytest

from tests.cli.server import PATIENCE_S, Client, Server
from tests.core.world import MemoryCheckpoints, World
from trilogue.core.errors import StoreError
from trilogue.core.ports import Callback, CheckpointDone
from trilogue.store.disk import OsDisk
from trilogue.store.verify import verify

DISK_BYTES = 48 << 20
HEALED_S = 30.0       # a second or two on an idle machine; this is only where the test gives up
BODY = "x" * 4_000


class Small(Server):
    """`data` is a tmpfs that only the server sees; others get at it through /proc."""

    def __init__(self, folder: pathlib.Path, low_bytes: int) -> None:
        super().__init__(folder, [f"storage.disk_low_bytes={low_bytes}"])

    def command(self) -> list[str]:
        mine = [] if os.geteuid() == 0 else ["--map-root-user"]
        mount = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {shlex.quote(str(self.folder / 'data'))}"
        return ["unshare", "--mount", *mine, "sh", "-c", f"{mount} && exec {shlex.join(super().command())}"]

    def start(self) -> Server:
        (self.folder / "data").mkdir(exist_ok=True)
        return super().start()

    @property
    def data(self) -> pathlib.Path:
        assert self.process is not None
        return pathlib.Path(f"/proc/{self.process.pid}/root{self.folder}/data")

    def free_bytes(self) -> int:
        stat = os.statvfs(self.data)
        return stat.f_bavail * stat.f_frsize

    def fill(self, leaving: int = 0) -> None:
        with (self.data / "filler").open("ab", buffering=0) as filler:
            while (room := self.free_bytes() - leaving) > 0:
                filler.write(bytes(min(room, 1 << 20)))

    def free(self) -> None:
        (self.data / "filler").unlink()

    def wait_for_health(self, status: int, seconds: float = PATIENCE_S) -> str:
        end = time.monotonic() + seconds
        while True:
            got, text = self.get("/health/ready")
            if got == status:
                return text
            assert time.monotonic() < end, f"health is {got}: {text}"
            time.sleep(0.02)


def is_silent(client: Client) -> bool:
    """Has the client heard nothing so far?"""
    client.socket.setblocking(False)
    try:
        client.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        client.socket.settimeout(PATIENCE_S)
    return False


def publish(client: Client, first: int, last: int) -> None:
    client.say(*(f"PUB - q {k}-{BODY}" for k in range(first, last + 1)))


def number_of(line: str) -> int:
    assert line.startswith("MSG "), line[:60]
    return int(line.split(" ")[3].partition("-")[0])


def check_copy(server: Small, folder: pathlib.Path, numbers: list[int]) -> None:
    """What is on the disk now is whole, and a broker that starts on it has these messages."""
    folder.mkdir()
    shutil.copytree(server.data, folder / "data", ignore=shutil.ignore_patterns("lock", "filler"))
    assert not any(report.problems for report in verify(OsDisk(), str(folder / "data")))
    with Server(folder) as other:
        client = other.client()
        assert client.ask(f"SUB q {len(numbers)}") == "OK"
        assert [number_of(client.hear()) for _ in numbers] == numbers


def test_a_full_disk_holds_publishers_and_heals(tmp_path: pathlib.Path) -> None:
    with Small(tmp_path, 1 << 20) as server:
        client = server.client()
        assert client.ask("DECLARE q durable") == "OK"
        taker = server.client()
        assert taker.ask("SUB q 10") == "OK"
        publish(client, 1, 1_000)
        client.hear_upto("OK 1000")
        server.fill()
        publish(client, 1_001, 1_100)
        other = server.client()
        publish(other, 2_001, 2_010)
        assert "No space left" in server.wait_for_health(503)
        for tag in range(1, 1_001):                         # what was there before goes on being consumed
            assert number_of(taker.hear()) == tag
            taker.say(f"ACK {tag}")
        assert is_silent(client) and is_silent(other)
        assert "No space left" in server.get("/health/ready")[1]

        server.free()
        server.wait_for_health(200, HEALED_S)
        client.hear_upto("OK 1100")
        other.hear_upto("OK 10")
        got = [number_of(taker.hear()) for _ in range(10)]
        assert got == sorted(got) and {number // 1_000 for number in got} <= {1, 2}
        assert server.client().ask("DECLARE another durable") == "OK"
        assert "internal error" not in server.log()
        taker.close()
        check_copy(server, tmp_path / "copy", check_order(server, 110))


def check_order(server: Small, count: int) -> list[int]:
    """What waits, as somebody sees it who takes it and gives it back."""
    client = server.client()
    assert client.ask(f"SUB q {count}") == "OK"
    numbers = [number_of(client.hear()) for _ in range(count)]
    assert sorted(numbers) == [*range(1_001, 1_101), *range(2_001, 2_011)]
    for part in (1, 2):
        assert [n for n in numbers if n // 1_000 == part] == sorted(n for n in numbers if n // 1_000 == part)
    client.close()
    return numbers


def test_below_the_low_mark_publishers_wait_and_consumers_drain(tmp_path: pathlib.Path) -> None:
    low = 24 << 20
    with Small(tmp_path, low) as server:
        client = server.client()
        assert client.ask("DECLARE q durable") == "OK"
        publish(client, 1, 500)
        client.hear_upto("OK 500")
        server.fill(leaving=low // 2)
        assert "publishing stops below" in server.wait_for_health(503)
        assert client.ask(f"PUB - q 501-{BODY}") == "OK 501"       # there is room: what is taken in is safe, but then the publisher waits
        publish(client, 502, 600)
        taker = server.client()                             # who does not publish is not held
        assert taker.ask("SUB q 50") == "OK"
        for tag in range(1, 502):
            assert number_of(taker.hear()) == tag
            taker.say(f"ACK {tag}")
        assert server.client().ask("DECLARE another durable") == "OK"
        assert is_silent(client)
        server.free()
        server.wait_for_health(200, HEALED_S)
        client.hear_upto("OK 600")
        assert [number_of(taker.hear()) for _ in range(50)] == list(range(502, 552))


def test_a_worker_that_publishes_what_it_consumes_can_acknowledge_while_it_is_held(tmp_path: pathlib.Path) -> None:
    low = 24 << 20
    with Small(tmp_path, low) as server:
        client = server.client()
        for queue in ("q", "results"):
            assert client.ask(f"DECLARE {queue} durable") == "OK"
        publish(client, 1, 40)
        client.hear_upto("OK 40")
        worker = server.client()
        assert worker.ask("SUB q 20") == "OK"
        assert [number_of(worker.hear()) for _ in range(20)] == list(range(1, 21))
        server.fill(leaving=low // 2)
        server.wait_for_health(503)
        assert worker.ask("PUB - results 1") == "OK 1"      # from here on it is held
        for tag in range(1, 21):
            worker.say(f"PUB - results {tag + 1}", f"ACK {tag}")
        assert [number_of(worker.hear()) for _ in range(20)] == list(range(21, 41))
        assert is_silent(worker)
        server.free()
        server.wait_for_health(200, HEALED_S)
        worker.hear_upto("OK 21")


class NoRoom(Callback):
    def __init__(self, partition: int, done: CheckpointDone) -> None:
        self.partition = partition
        self.done = done

    def fire(self) -> None:
        self.done.checkpoint_done(self.partition, StoreError("checkpoint cannot be written: No space left on device"))


class FullCheckpoints(MemoryCheckpoints):
    """Has no room for the next so many commits."""

    failures = 0
    failed = 0

    def commit(self, partition: int, puts: list[tuple[bytes, bytes]], deletes: list[bytes], done: CheckpointDone) -> None:
        if self.failures:
            self.failures -= 1
            self.failed += 1
            assert self.post is not None
            self.post.post(NoRoom(partition, done))
        else:
            super().commit(partition, puts, deletes, done)


@pytest.mark.parametrize("failures", [1, 5, 40])
def test_a_checkpoint_without_room_is_written_later(tmp_path: pathlib.Path, failures: int) -> None:
    """The old one holds until then: nothing is forgotten, and no segment that it needs is deleted (RULES 1)."""
    memory = FullCheckpoints()
    world = World(tmp_path / "data", 1 << 14, memory=memory)
    for name in ("a", "b"):
        world.declare(name)
    owed = fill_and_drain(world, 0)
    for _ in range(3):
        world.tick()
    memory.failures = failures
    owed += fill_and_drain(world, 1)
    world.tick()
    assert memory.failed
    assert not any(partition.stopped for partition in world.broker.partitions.values())
    world.crash()                                       # before it was written: the old checkpoint and the log have everything
    assert not world.broker.failures
    owed += fill_and_drain(world, 2)
    while memory.failures:
        world.tick()
    for _ in range(4):
        owed += fill_and_drain(world, 3)
        world.tick()
    world.crash()
    assert not world.broker.failures
    taker = world.consume("a")
    assert taker.got == owed


def fill_and_drain(world: World, round_number: int) -> list[bytes]:
    """Fills several segments; everything is consumed again but one message in `a`."""
    for k in range(40):
        world.publish("b", b"%d %d " % (round_number, k) + bytes(1_000))
    kept = b"kept %d" % round_number
    world.publish("a", kept)
    taker = world.consume("b")
    taker.ack(len(taker.got), multiple=True)
    taker.leave()
    world.loop.advance(200)
    return [kept]
