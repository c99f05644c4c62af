"""What `core` and `store` do in one process, without sockets: messages appended, routed and applied per second.

usage: python bench/core.py [--n 5000000] [--durability fsync|os] [--consume] [--queues 1] [--dir DIR]
Prints one JSON line. Runs are of 500 messages of 100 bytes; one run per turn of the loop stands for one read of a socket.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import tempfile
import time

from trilogue import tuning
from trilogue.core.access import Access, Identity
from trilogue.core.administration import Administration
from trilogue.core.batch import read_header
from trilogue.core.broker import Broker
from trilogue.core.catalog import Catalog
from trilogue.core.consumer import Consumer
from trilogue.core.follower import Follower
from trilogue.core.housekeeping import Housekeeping
from trilogue.core.limits import Limits
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.publisher import Publisher
from trilogue.core.settings import AccessSettings, LimitSettings
from trilogue.core.startup import PartitionOpener, Startup
from trilogue.core.topic import Unpacker
from trilogue.core.unacked import Unacked, hold
from trilogue.core.window import Budget
from trilogue.loop import LoopScheduler
from trilogue.routing.exchange import SeededChance
from trilogue.routing.lens import Lenses
from trilogue.routing.router import BindingRouter
from trilogue.store.codec import records_of
from trilogue.store.settings import StoreSettings
from trilogue.store.store import Store
from trilogue.store.worker import LoopPost

try:
    import uvloop
except ImportError:
    uvloop = None


class Unpack(Unpacker):
    def records(self, batch: bytes) -> bytes:
        return records_of(batch, read_header(batch, 0))


class Source(Publisher):
    def __init__(self) -> None:
        super().__init__()
        self.sure = 0
        self.waiting: asyncio.Event = asyncio.Event()
        self.waiting.set()

    def confirmed(self, upto: int) -> None:
        self.sure = upto

    def confirmed_only(self, first: int, last: int) -> None:
        self.sure = last

    def refused(self, upto: int, error: Exception) -> None:
        raise error

    def refused_only(self, first: int, last: int, error: Exception) -> None:
        raise error

    def hold(self) -> None:
        self.waiting.clear()

    def release(self) -> None:
        self.waiting.set()


class Sink(Consumer):
    """Acknowledges whatever it was given when the next piece comes."""

    def __init__(self, prefetch: int) -> None:
        super().__init__()
        self.prefetch = prefetch
        self.unacked = Unacked()
        self.got = 0
        self.queue = None

    def room(self) -> int:
        return self.prefetch - self.unacked.count

    def deliver(self, lane: object, piece: object, count: int) -> None:
        self.unacked.add(hold(self.got + 1, lane, piece.ordinal, piece.run, piece.start, count, self))
        self.got += count

    def cancelled(self) -> None:
        raise AssertionError("cancelled")

    def acknowledge(self) -> None:
        for held in self.unacked.take_all():
            self.queue.settle(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
        self.queue.pump()


class Node:
    """As much of a node as a benchmark needs."""

    def __init__(self, path: str, durability: str) -> None:
        loop = asyncio.get_running_loop()
        scheduler = LoopScheduler(loop)
        self.store = Store(path, StoreSettings(durability=durability), LoopPost(loop))
        catalog = Catalog()
        access = Access(catalog, AccessSettings(), scheduler, os.urandom(16))
        self.broker = Broker(scheduler, self.store.journal, BindingRouter(SeededChance(b"benchmark")), Lenses(), catalog, access,
                             Limits(catalog, LimitSettings()), 64 << 20, self.store.epoch)
        self.store.journal.attach(self.broker.flusher)
        self.opener = PartitionOpener(self.broker, self.store.checkpoints, Unpack())
        startup = Startup(self.broker, self.opener, 1, Budget(256 << 20, 8 << 20), 1000, 1 << 20)
        startup.open_partitions()
        Follower(self.broker, self.opener).catch_up()
        startup.lead()
        if "/" not in catalog.vhosts:
            self.broker.metadata.change(catalog.plan_vhost("/"))
            self.broker.metadata.change(catalog.plan_user("bench", "", "argon2id", []))
            self.broker.metadata.change(catalog.plan_permission("/", "bench", ".*", ".*", ".*"))
        self.admin = Administration(self.broker)
        self.house = Housekeeping(self.broker, self.opener)
        self.session = self.broker.open(Identity("bench", []), "/", self.broker.arrive(), "bench", "bench")

    async def keep_house(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.house.tick(0)


def resident_kb() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() // 1024


async def drain(sink: Sink, n: int) -> float:
    start = time.perf_counter()
    while sink.got < n:
        sink.acknowledge()
        await asyncio.sleep(0)
    return time.perf_counter() - start


async def work(args: argparse.Namespace, path: str) -> dict[str, object]:
    node = Node(path, args.durability)
    house = asyncio.ensure_future(node.keep_house())
    names = [b"queue-%d" % k for k in range(args.queues)]
    for name in names:
        node.admin.declare_queue(node.session, name.decode(), True, False, False, {})
    spans = [native_span(b"", b"x" * 96) for _ in range(args.run)]
    size = sum(map(len, spans))
    source = Source()
    sinks = []
    if args.consume:
        for name in names:
            sink = Sink(5000)
            sink.queue = node.broker.consume(node.session, name.decode(), sink)
            sinks.append(sink)
    await asyncio.sleep(0.1)
    before_kb = resident_kb()
    cpu = time.process_time()
    start = time.perf_counter()
    sent = 0
    turn = 0
    while sent < args.n:
        await source.waiting.wait()
        name = names[turn % len(names)]
        node.broker.publish(node.session, source, Run(b"", name, ORIGIN_NATIVE, spans, size, PERSISTENT), True)
        sent += args.run
        for sink in sinks[turn % len(names):turn % len(names) + 1]:
            sink.acknowledge()
        turn += 1
        await asyncio.sleep(0)
    while source.sure < sent:
        await asyncio.sleep(0)
    took = time.perf_counter() - start
    cpu = time.process_time() - cpu
    result = {"durability": args.durability, "queues": args.queues, "run": args.run, "messages": sent, "per_second": round(sent / took),
              "cpu_us": round(cpu / sent * 1e6, 3), "rounds": int(node.broker.flusher.rounds), "grown_mb": (resident_kb() - before_kb) // 1024}
    if args.drain:
        sink = Sink(5000)
        sink.queue = node.broker.consume(node.session, names[0].decode(), sink)
        took = await drain(sink, sent // len(names))
        result["drained_per_second"] = round(sink.got / took)
        result["grown_after_drain_mb"] = (resident_kb() - before_kb) // 1024
    house.cancel()
    await asyncio.sleep(0.3)
    node.store.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=5_000_000)
    parser.add_argument("--run", type=int, default=500)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--durability", default="fsync", choices=["fsync", "os"])
    parser.add_argument("--consume", action="store_true")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--dir", default=None)
    args = parser.parse_args()
    tuning.tune_process()
    path = tempfile.mkdtemp(prefix="trilogue-bench-", dir=args.dir)
    try:
        runner = uvloop.run if uvloop is not None else asyncio.run
        print(json.dumps(runner(work(args, path))))
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
