"""A node in a bottle: the unmodified core on the unmodified store, with the loop, the clock and the threads played by the test."""

from __future__ import annotations

import heapq
import random
from pathlib import Path

from trilogue.core.access import Access, Identity
from trilogue.core.administration import Administration
from trilogue.core.batch import read_header
from trilogue.core.broker import Broker
from trilogue.core.catalog import Catalog
from trilogue.core.consumer import Consumer
from trilogue.core.entities import Topic
from trilogue.core.follower import Follower
from trilogue.core.housekeeping import Housekeeping
from trilogue.core.limits import Limits
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.ports import Callback, CheckpointDone, Checkpoints, Lens, Scheduler, Timer
from trilogue.core.publisher import Publisher
from trilogue.core.settings import AccessSettings, LimitSettings
from trilogue.core.startup import PartitionOpener, Startup
from trilogue.core.topic import Unpacker
from trilogue.core.unacked import Unacked, hold
from trilogue.core.window import Budget
from trilogue.routing.exchange import SeededChance
from trilogue.routing.router import BindingRouter
from trilogue.store.checkpoints import LmdbCheckpoints
from trilogue.store.codec import records_of
from trilogue.store.datadir import DataDir
from trilogue.store.disk import Disk, OsDisk
from trilogue.store.journal import DiskJournal
from trilogue.store.settings import StoreSettings
from trilogue.store.worker import InlineWorker, Post

START_MS = 1_700_000_000_000


class TestTimer(Timer):
    __test__ = False

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop(Scheduler):
    """Time passes only when the test says so."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.soon: list[Callback] = []
        self.later: list[tuple[int, int, TestTimer, Callback]] = []
        self.count = 0

    def call_soon(self, callback: Callback) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        timer = TestTimer()
        self.count += 1
        heapq.heappush(self.later, (self.ms + round(delay_s * 1000), self.count, timer, callback))
        return timer

    def now_ms(self) -> int:
        return self.ms

    def turn(self) -> None:
        """One turn only: what it leaves for the next one stays there."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback.fire()

    def run(self) -> None:
        """Until nothing is left to do at this moment."""
        while True:
            self.turn()
            while self.later and self.later[0][0] <= self.ms:
                _, _, timer, callback = heapq.heappop(self.later)
                if not timer.cancelled:
                    callback.fire()
            if not self.soon and not (self.later and self.later[0][0] <= self.ms):
                return

    def advance(self, ms: int) -> None:
        stop = self.ms + ms
        self.run()
        while self.later and self.later[0][0] <= stop:
            self.ms = max(self.ms, self.later[0][0])
            self.run()
        self.ms = stop
        self.run()


class LoopPost(Post):
    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def post(self, callback: Callback) -> None:
        self.loop.call_soon(callback)


class PlainLens(Lens):
    def headers(self, origin: int, span: bytes) -> dict[str, object]:
        return {}


class StoreUnpacker(Unpacker):
    def records(self, batch: bytes) -> bytes:
        return records_of(batch, read_header(batch, 0))


class Landed(Callback):
    def __init__(self, store: MemoryCheckpoints, partition: int, done: CheckpointDone) -> None:
        self.store = store
        self.partition = partition
        self.done = done

    def fire(self) -> None:
        self.store.land()
        self.done.checkpoint_done(self.partition, None)


class MemoryCheckpoints(Checkpoints):
    """Checkpoints for a node whose disk is simulated. A commit is in flight until the loop turns; at a crash it has happened or not."""

    def __init__(self, values: dict[bytes, bytes] | None = None) -> None:
        self.values = values or {}
        self.flying: list[tuple[list[tuple[bytes, bytes]], list[bytes]]] = []
        self.post: Post | None = None

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self.values.items() if key.startswith(prefix))

    def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    def commit(self, partition: int, puts: list[tuple[bytes, bytes]], deletes: list[bytes], done: CheckpointDone) -> None:
        self.flying.append((list(puts), list(deletes)))
        self.post.post(Landed(self, partition, done))

    def land(self) -> None:
        puts, deletes = self.flying.pop(0)
        for key in deletes:
            self.values.pop(key, None)
        self.values.update(puts)

    def erase(self, prefix: bytes) -> None:
        self.values = {key: value for key, value in self.values.items() if not key.startswith(prefix)}

    def crash(self, rng: random.Random) -> MemoryCheckpoints:
        while self.flying and rng.random() < 0.5:
            self.land()
        return MemoryCheckpoints(self.values)

    def close(self) -> None:
        assert not self.flying


class Writer(Publisher):
    """A publisher that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.sure = 0
        self.sure_only: list[tuple[int, int]] = []
        self.lost: list[str] = []
        self.lost_only: list[int] = []
        self.holding = False

    def confirmed(self, upto: int) -> None:
        assert upto >= self.sure
        self.sure = upto

    def confirmed_only(self, first: int, last: int) -> None:
        self.sure_only.append((first, last))

    def refused(self, upto: int, error: Exception) -> None:
        self.lost.append(str(error))

    def refused_only(self, first: int, last: int, error: Exception) -> None:
        self.lost_only.extend(range(first, last + 1))

    def hold(self) -> None:
        self.holding = True

    def release(self) -> None:
        self.holding = False


class Taker(Consumer):
    """A consumer that keeps what it got: (body, again)."""

    def __init__(self, prefetch: int = 1 << 40, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.prefetch = prefetch
        self.unacked = Unacked()
        self.tag = 0
        self.got: list[bytes] = []
        self.again: list[bool] = []
        self.runs: list[Run] = []
        self.gone = False
        self.queue = None

    def room(self) -> int:
        return self.prefetch - self.unacked.count

    def deliver(self, lane: object, piece: object, count: int) -> None:
        for k in range(count):
            self.got.append(body_of(piece.run.spans[piece.start + k]))
            self.again.append(piece.again)
        self.runs.append(piece.run)
        if not self.no_ack:
            self.unacked.add(hold(self.tag + 1, lane, piece.ordinal, piece.run, piece.start, count, self))
        self.tag += count

    def cancelled(self) -> None:
        self.gone = True

    def ack(self, tag: int, multiple: bool = False) -> None:
        for held in self.unacked.take_upto(tag) if multiple else self.unacked.take(tag, tag):
            held.lane.owner.settle(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
        self.queue.pump()

    def nack(self, tag: int, requeue: bool = True) -> None:
        for held in self.unacked.take(tag, tag):
            size = held.bytes_of(0, held.count)
            if requeue:
                held.lane.owner.give_back(held.lane, held.ordinal, held.count, size)
            else:
                held.lane.owner.reject(held.lane, held.ordinal, held.count, size)
        self.queue.pump()

    def leave(self) -> None:
        for held in self.unacked.take_all():
            held.lane.owner.give_back(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
        self.queue.detach(self)


def body_of(span: bytes) -> bytes:
    return span[4 + int.from_bytes(span[:4], "big"):]


class World:
    """On the real disk and LMDB, or on a simulated `disk` with checkpoints in `memory`."""

    def __init__(self, path: Path, segment_bytes: int = 1 << 20, shards: int = 2, window: int = 1 << 20, unsynced_max: int = 64 << 20,
                 disk: Disk | None = None, memory: MemoryCheckpoints | None = None) -> None:
        self.path = path
        self.disk = disk
        self.memory = memory
        self.ms = START_MS
        self.segment_bytes = segment_bytes
        self.shards = shards
        self.window = window
        self.unsynced_max = unsynced_max
        self.start()

    def start(self) -> None:
        self.loop = Loop()          # what an earlier life had scheduled died with it
        self.loop.ms = self.ms
        post = LoopPost(self.loop)
        disk = self.disk or OsDisk()
        if self.disk is None:
            self.path.mkdir(exist_ok=True)
        self.datadir = DataDir(disk, str(self.path))
        settings = StoreSettings(segment_bytes=self.segment_bytes, index_interval_bytes=4096, checkpoint_map_bytes=1 << 28)
        if self.memory is None:
            self.store = LmdbCheckpoints(self.datadir.checkpoints_path, settings.checkpoint_map_bytes, post, InlineWorker())
        else:
            self.store = self.memory
            self.memory.post = post
        self.journal = DiskJournal(disk, self.datadir, settings, post, InlineWorker(), InlineWorker(), InlineWorker())
        catalog = Catalog()
        self.access = Access(catalog, AccessSettings(), self.loop, b"secret")
        self.broker = Broker(self.loop, self.journal, BindingRouter(SeededChance(b"seedseed")), PlainLens(), catalog, self.access,
                             Limits(catalog, LimitSettings()), self.unsynced_max, self.datadir.epoch)
        self.journal.attach(self.broker.flusher)
        self.opener = PartitionOpener(self.broker, self.store, StoreUnpacker())
        self.startup = Startup(self.broker, self.opener, self.shards, Budget(64 << 20, self.window), 1000, 1 << 20)
        self.startup.open_partitions()
        Follower(self.broker, self.opener).catch_up()
        self.startup.lead()
        self.admin = Administration(self.broker)
        self.house = Housekeeping(self.broker, self.opener)
        if "/" not in catalog.vhosts:
            self.broker.metadata.change(catalog.plan_vhost("/"))
            self.broker.metadata.change(catalog.plan_user("u", "", "argon2id", []))
            self.broker.metadata.change(catalog.plan_permission("/", "u", ".*", ".*", ".*"))
        self.loop.run()
        self.session = self.connect()
        self.writer = Writer()

    def connect(self) -> object:
        return self.broker.open(Identity("u", []), "/", self.broker.arrive(), "test", "test")

    def tick(self) -> None:
        """A second of housekeeping."""
        self.loop.advance(1000)
        self.house.tick(0)
        self.loop.run()

    def declare(self, name: str, durable: bool = True, **arguments: object) -> object:
        named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        found = self.admin.declare_queue(self.session, name, durable, False, False, named)
        self.loop.run()
        return None if isinstance(found, Topic) else self.broker.queue(found.id)

    def publish(self, key: str, *bodies: bytes, exchange: str = "", priority: int = 0, ttl_ms: int = -1, persistent: bool = True,
                writer: Writer | None = None, run: bool = True, confirm: bool = True) -> bool:
        spans = [native_span(b"", body) for body in bodies]
        made = Run(exchange.encode(), key.encode(), ORIGIN_NATIVE, spans, sum(map(len, spans)), PERSISTENT if persistent else 0, priority, ttl_ms)
        routed = self.broker.publish(self.session, writer or self.writer, made, confirm)
        if run:
            self.loop.run()
        return routed

    def consume(self, name: str, taker: Taker | None = None, **options: object) -> Taker:
        taker = taker or Taker(**options)
        taker.queue = self.broker.consume(self.session, name, taker)
        self.loop.run()
        return taker

    def stop(self) -> None:
        """A clean stop."""
        self.loop.advance(200)
        self.ms = self.loop.ms
        self.store.close()
        self.journal.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """Nothing that was not written by now is written later; the process's memory is gone."""
        self.ms = self.loop.ms
        if self.memory is None:
            self.store.env.close()
        self.journal.files.close()
        self.datadir.disk.close(self.journal.root_fd)
        self.datadir.disk.close(self.datadir.lock_fd)
        self.start()

    def lose_power(self, rng: random.Random) -> None:
        """The simulated disk drops, tears and reorders what was not synced."""
        self.ms = self.loop.ms
        self.disk = self.disk.crash(rng)
        self.memory = self.memory.crash(rng)
