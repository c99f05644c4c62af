"""A random life of a node beside a model of what it owes: used with kills (`test_model.py`) and with power losses (`test_power_cuts.py`).

Every body is unique, so the model is a set of facts about each one: confirmed, meant to be gone, known to be gone. What the node has is
counted anew from its logs, not asked of the code under test: `Census` reads every batch and looks where the chains say a message lies.
"""

from __future__ import annotations

import random

from tests.core.world import MemoryCheckpoints, Taker, World, Writer, body_of
from tests.faults.simdisk import PowerLoss, SimDisk
from trilogue.core.batch import RECORDS_AT, read_header
from trilogue.core.decoding import decode
from trilogue.core.lane import run_of
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.record import Delayed
from trilogue.core.startup import TRANSIENT_ID

LETTERS = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
REFUSED_LETTERS = {"dead_letter_exchange": "", "dead_letter_routing_key": "full"}
KINDS: list[dict[str, object]] = [
    {},
    {"max_priority": 3},
    {"max_length": 4},
    {"max_length_bytes": 400},
    {"max_length": 3, **LETTERS},
    {"max_length": 4, "overflow": "reject-publish"},
    {"message_ttl": 300},
    {"message_ttl": 250, **LETTERS},
    {"delivery_limit": 1, **LETTERS},
    {"message_ttl": 400, **REFUSED_LETTERS},
    {"max_priority": 2, **LETTERS},
    {"retention": 1500},
]
FIXED: dict[str, dict[str, object]] = {"dead": {}, "full": {"max_length": 3, "overflow": "reject-publish"}}


class Lost(AssertionError):
    """The node has lost, doubled, reordered or brought back something."""


class Fact:
    """One published body."""

    def __init__(self, body: bytes, queue: str, writer: Writer, number: int, order: int, mortal: bool) -> None:
        self.body = body
        self.queue = queue
        self.writer = writer
        self.number = number
        self.order = order
        self.mortal = mortal            # it may vanish by itself
        self.delayed = False
        self.ended = False              # somebody meant it to be gone
        self.gone = False               # and by now it is, for good

    def confirmed(self) -> bool:
        writer = self.writer
        if self.number in writer.lost_only:
            return False
        return self.number <= writer.sure or any(first <= self.number <= last for first, last in writer.sure_only)


class Census:
    """What the shards of a node have, by reading their logs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.spans: dict[tuple[int, int], bytes] = {}
        for shard in world.broker.shards:
            self.read(shard)

    def read(self, shard: object) -> None:
        log = shard.log
        at = log.start_offset()
        while True:
            batches = log.read(at, 1 << 20)
            if not batches:
                return
            for batch in batches:
                header = read_header(batch, 0)
                at = header.last + 1
                for record in decode(header, batch[RECORDS_AT:]):
                    run = record.run if isinstance(record, Delayed) else run_of(record)
                    if run is not None:
                        for k, span in enumerate(run.spans):
                            self.spans[int(shard.id), int(record.offset) + k] = span

    def lane(self, shard: object, lane: object) -> dict[int, bytes]:
        """Ordinal -> span of everything that is not settled."""
        out: dict[int, bytes] = {}
        chain = lane.chain
        for ordinal in range(chain.floor, chain.next):
            if not chain.done.contains(ordinal):
                offset, _ = chain.extent(ordinal, shard.source.store, shard.source.prefix)
                span = self.spans.get((int(shard.id), offset))
                if span is None:
                    raise Lost(f"message {ordinal} of chain {chain.target} is not at offset {offset}")
                out[ordinal] = span
        return out

    def contents(self) -> dict[str, list[list[bytes]]]:
        """Queue -> level by level the bodies it has, in order."""
        out: dict[str, list[list[bytes]]] = {}
        by_id = self.world.broker.catalog.by_id
        for shard in self.world.broker.shards:
            for id, queue in shard.queues.items():
                out[by_id[id].name] = [[body_of(span) for span in self.lane(shard, lane).values()] for lane in queue.lanes]
        return out

    def under_way(self) -> list[bytes]:
        """Bodies that shards keep for themselves: delayed, or on their way to another partition."""
        out: list[bytes] = []
        for shard in self.world.broker.shards:
            for source in shard.outbox.sources() + list(shard.delays.due):
                out.append(body_of(self.spans[int(shard.id), shard.outbox.located(source)]))
        return out


def check_books(world: World, census: Census) -> None:
    """Every counter that the core keeps up is equal to one made from scratch."""
    used = 0
    for shard in world.broker.shards:
        live: dict[int, int] = {}
        bases = [info.base for info in shard.log.segments()]
        for queue in shard.queues.values():
            held = 0
            for lane in queue.lanes:
                chain = lane.chain
                spans = census.lane(shard, lane)
                if not chain.keeps:
                    assert chain.size == sum(map(len, spans.values())), (chain.target, chain.size)
                answered = sum(lane.acked_hi) - sum(lane.acked_lo)      # by a retry that came in just now
                assert lane.ready() == len(spans) - lane.held - answered, (chain.target, lane.ready(), len(spans), lane.held)
                assert lane.window.size == sum(entry.run.size for entry in lane.window.entries)
                assert [entry.first for entry in lane.window.entries] == sorted(entry.first for entry in lane.window.entries)
                used += lane.window.size
                held += lane.held
                for lo, hi in chain.live_ranges(0, chain.next):
                    for ordinal in range(lo, hi):
                        offset, _ = chain.extent(ordinal, shard.source.store, shard.source.prefix)
                        assert (int(shard.id), offset) in census.spans, "something live lies in a deleted segment"
                        base = max(base for base in bases if base <= offset)
                        live[base] = live.get(base, 0) + 1
            assert queue.waiting() == queue.ready() + held
            assert not queue.condemned
        sources = shard.outbox.sources() + list(shard.delays.due)
        for source in sources:
            base = max(base for base in bases if base <= shard.outbox.located(source))
            live[base] = live.get(base, 0) + 1
        assert shard.outbox.owed == {source: sources.count(source) for source in sources}
        assert set(shard.outbox.moved) <= set(sources)
        assert {base: n for base, n in shard.liveness.live.items() if n} == live
        assert shard.liveness.total == sum(live.values())
        for pair in shard.outbox.pairs.values():
            assert not pair.pending, "a hand-off is left behind"
            assert not pair.refused or pair.retrying
    assert used + sum(lane.window.size for queue in world.broker.transient.queues.values() for lane in queue.lanes) == world.startup.budget.used


class Watched(Taker):
    """A consumer that checks each delivery against what was delivered and answered before."""

    def __init__(self, driver: Driver, name: str, **options: object) -> None:
        super().__init__(**options)
        self.driver = driver
        self.name = name

    def deliver(self, lane: object, piece: object, count: int) -> None:
        for k in range(count):
            body = body_of(piece.run.spans[piece.start + k])
            self.driver.delivered(self, lane, piece.ordinal + k, body, piece.again)
        super().deliver(lane, piece, count)


class Driver:
    def __init__(self, seed: int, ignores_sync: bool = False) -> None:
        self.rng = random.Random(seed)
        self.facts: dict[bytes, Fact] = {}
        self.kinds: dict[str, dict[str, object]] = {}
        self.before: set[tuple[str, bytes]] = set()     # delivered at some time
        self.takers: list[Watched] = []
        self.out: dict[int, set[int]] = {}              # target -> ordinals that somebody holds or has answered
        self.order = 0
        self.deliveries = 0
        self.disk = SimDisk()
        self.disk.ignores_sync = ignores_sync
        self.ignores_sync = ignores_sync
        self.forgets_checkpoints = False
        self.sizes = {"segment_bytes": self.rng.choice([4_096, 20_000]), "window": self.rng.choice([300, 100_000])}
        self.world: World | None = None
        self.memory = MemoryCheckpoints()

    # ---------------------------------------------------------------------------------------- lives

    def begin(self) -> None:
        """Start the node for the first time, or again on what an end has left."""
        if self.world is None:
            self.world = World("/data", shards=2, disk=self.disk, memory=self.memory, **self.sizes)
        else:
            self.world.start()
        # A deletion or declaration that nobody was promised may have been lost.
        self.kinds = {}
        for entity in self.world.broker.catalog.by_id.values():
            self.kinds[entity.name] = {key[2:].replace("-", "_"): value for key, value in entity.arguments.items()}
        self.survey(crashed=True)
        for name, arguments in FIXED.items():
            self.declare(name, arguments)

    def forget_connections(self) -> None:
        self.takers = []
        self.out = {}

    def killed(self) -> None:
        """kill -9: what was written stays, synced or not."""
        self.forget_connections()
        self.memory = self.memory.crash(self.rng)
        self.world.memory = self.memory
        self.world.ms = self.world.loop.ms
        self.disk.killed()
        self.begin()

    def lose_power(self) -> None:
        self.forget_connections()
        if self.world is not None:
            self.world.lose_power(self.rng)
            self.disk, self.memory = self.world.disk, self.world.memory
        else:
            self.disk, self.memory = self.disk.crash(self.rng), self.memory.crash(self.rng)
        self.disk.ignores_sync = self.ignores_sync
        if self.forgets_checkpoints:
            self.memory.values = {}

    def restart(self) -> None:
        self.settle()
        self.world.stop()
        self.forget_connections()
        self.begin()

    def lose_checkpoints(self) -> None:
        """Only as long as no segment was deleted can the log alone bring everything back."""
        self.world.loop.run()
        for partition in self.world.broker.partitions.values():
            at = 0
            for info in partition.log.segments():
                if partition.id < TRANSIENT_ID and info.base != at:
                    return
                at = info.end
        self.memory.values = {}
        self.killed()

    # ---------------------------------------------------------------------------------------- what is true

    def settle(self) -> None:
        """Everything asked for so far is on disk; what is not there now is gone for good."""
        self.world.loop.advance(400)
        self.survey(crashed=False)
        for taker in self.takers:
            if taker.queue is not None and not taker.gone:
                taker.queue.pump()
        self.world.loop.run()

    def survey(self, crashed: bool) -> None:
        world = self.world
        for _ in range(3):
            world.loop.advance(150)
        census = Census(world)
        contents = census.contents()
        count: dict[bytes, int] = {}
        for name, levels in contents.items():
            for bodies in levels:
                self.check_order(name, bodies)
                for body in bodies:
                    count[body] = count.get(body, 0) + 1
        for body in census.under_way():
            count[body] = count.get(body, 0) + 1
        for body, n in count.items():
            if body not in self.facts:
                raise Lost(f"{body!r} was never published")
            if n > 1:
                raise Lost(f"{body!r} is there {n} times")
            if self.facts[body].gone:
                raise Lost(f"{body!r} is back")
        for fact in list(self.facts.values()):
            if fact.body in count:
                if crashed:
                    fact.ended = False      # whatever was meant never got to the disk
            elif not fact.gone:
                if fact.confirmed() and not fact.ended and not fact.mortal:
                    raise Lost(f"{fact.body!r} for {fact.queue} is lost")
                fact.gone = True
        check_books(world, census)

    def check_order(self, name: str, bodies: list[bytes]) -> None:
        if name not in FIXED:
            orders = [self.facts[body].order for body in bodies if body in self.facts and not self.facts[body].delayed]
            if orders != sorted(orders):
                raise Lost(f"{name} is out of order")

    def delivered(self, taker: Watched, lane: object, ordinal: int, body: bytes, again: bool) -> None:
        self.deliveries += 1
        fact = self.facts.get(body)
        if fact is None or fact.gone:
            raise Lost(f"{body!r} is delivered though it is gone")
        if (taker.name, body) in self.before and not again:
            raise Lost(f"{body!r} was delivered before, and does not say so")
        self.before.add((taker.name, body))
        out = self.out.setdefault(int(lane.chain.target), set())
        if ordinal in out:
            raise Lost(f"{body!r} is delivered twice")
        chain = lane.chain
        for earlier in range(chain.floor, ordinal):
            if earlier not in out and not chain.done.contains(earlier):
                raise Lost(f"{body!r} overtakes message {earlier} of its lane")
        out.add(ordinal)
        if taker.no_ack:
            fact.ended = True

    # ---------------------------------------------------------------------------------------- what happens

    def step(self) -> None:
        steps = [
            (self.publish, 30), (self.consume, 8), (self.acknowledge, 22), (self.refuse, 8), (self.leave, 4), (self.purge, 1),
            (self.delete, 1), (self.delay, 2), (self.pass_time, 10), (self.tick, 10), (self.settle, 4), (self.rewind, 1), (self.turn, 6),
            (self.checkpoint, 6),
        ]
        action = self.rng.choices([action for action, _ in steps], [weight for _, weight in steps])[0]
        action()

    def declare(self, name: str, arguments: dict[str, object]) -> None:
        self.kinds[name] = arguments
        self.world.declare(name, **arguments)

    def some_queue(self) -> str:
        name = f"q{self.rng.randrange(5)}"
        if name not in self.kinds:
            self.declare(name, self.rng.choice(KINDS))
        return name

    def is_mortal(self, name: str, ttl_ms: int) -> bool:
        kind = self.kinds[name]
        if "dead_letter_exchange" in kind:
            return False
        drops = ("max_length" in kind or "max_length_bytes" in kind) and "overflow" not in kind
        return ttl_ms >= 0 or drops or "message_ttl" in kind or "delivery_limit" in kind

    def bodies(self, name: str, ttl_ms: int = -1) -> list[bytes]:
        writer = self.world.writer
        out: list[bytes] = []
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            self.order += 1
            body = b"%d:" % self.order + b"x" * self.rng.choice([0, 10, 150])
            self.facts[body] = Fact(body, name, writer, writer.sequence + len(out) + 1, self.order, self.is_mortal(name, ttl_ms))
            out.append(body)
        return out

    def publish(self) -> None:
        rng = self.rng
        name = self.some_queue()
        for _ in range(rng.choice([1, 1, 1, 3])):
            ttl_ms = rng.choice([-1, -1, -1, -1, 200])
            persistent = rng.random() < 0.8
            bodies = self.bodies(name, ttl_ms)
            priority = rng.randrange(4)
            if not persistent:
                for body in bodies:
                    self.facts[body].mortal = True      # confirmed before it is on disk
            self.world.publish(name, *bodies, priority=priority, ttl_ms=ttl_ms, persistent=persistent, run=False)
        if rng.random() < 0.6:
            self.world.loop.run()

    def delay(self) -> None:
        name = self.some_queue()
        bodies = self.bodies(name)
        spans = [native_span(b"", body) for body in bodies]
        for body in bodies:
            # Its queue may be deleted, or full, by the time that it is due.
            self.facts[body].mortal = True
            self.facts[body].delayed = True
        run = Run(b"", name.encode(), ORIGIN_NATIVE, spans, sum(map(len, spans)), PERSISTENT)
        self.world.broker.publish_delayed(self.world.session, self.world.writer, run, self.rng.choice([100, 900]), True)

    def consume(self) -> None:
        if len(self.takers) >= 6:
            return
        name = self.rng.choice([self.some_queue(), "dead", "full"])
        options: dict[str, object] = {"prefetch": self.rng.choice([1, 3, 1_000])}
        if self.rng.random() < 0.15:
            options["once"] = True
            options["prefetch"] = 1
        elif self.rng.random() < 0.1:
            options["no_ack"] = True
        taker = Watched(self, name, **options)
        self.takers.append(taker)
        taker.queue = self.world.broker.queue(self.world.broker.catalog.destination("/", name).id)
        self.world.broker.consume(self.world.session, name, taker)
        if self.rng.random() < 0.7:
            self.world.loop.run()

    def some_taker(self) -> Watched | None:
        found = [taker for taker in self.takers if taker.unacked.count and not taker.gone]
        return self.rng.choice(found) if found else None

    def held_tags(self, taker: Watched) -> list[int]:
        return [held.tag + k for held in taker.unacked.held for k in range(held.count)]

    def acknowledge(self) -> None:
        taker = self.some_taker()
        if taker is None:
            return
        tags = self.held_tags(taker)
        tag = self.rng.choice(tags)
        multiple = self.rng.random() < 0.4
        for other in tags:
            if other == tag or (multiple and other <= tag):
                self.facts[taker.got[other - 1]].ended = True
        taker.ack(tag, multiple)

    def refuse(self) -> None:
        taker = self.some_taker()
        if taker is None:
            return
        tag = self.rng.choice(self.held_tags(taker))
        requeue = self.rng.random() < 0.6
        fact = self.facts[taker.got[tag - 1]]
        if not requeue and "dead_letter_exchange" not in self.kinds[taker.name]:
            fact.ended = True
        for held in taker.unacked.held:
            if held.tag <= tag < held.tag + held.count:
                self.out[int(held.lane.chain.target)].discard(held.ordinal + tag - held.tag)
                if not requeue:
                    self.out[int(held.lane.chain.target)].add(held.ordinal + tag - held.tag)
        taker.nack(tag, requeue)

    def leave(self) -> None:
        if self.takers:
            taker = self.takers.pop(self.rng.randrange(len(self.takers)))
            for held in taker.unacked.held:
                self.out[int(held.lane.chain.target)] -= set(range(held.ordinal, held.ordinal + held.count))
            if not taker.gone:
                taker.leave()

    def bodies_of(self, name: str) -> list[bytes]:
        self.world.loop.run()
        return [body for level in Census(self.world).contents()[name] for body in level]

    def purge(self) -> None:
        name = self.some_queue()
        held = {taker.got[tag - 1] for taker in self.takers if taker.name == name for tag in self.held_tags(taker)}
        for body in self.bodies_of(name):
            if body not in held:
                self.facts[body].ended = True
        self.world.admin.purge_queue(self.world.session, name)

    def delete(self) -> None:
        name = self.some_queue()
        for body in self.bodies_of(name):
            self.facts[body].ended = True
        for taker in self.takers:
            if taker.name == name:
                taker.unacked.take_all()
        del self.kinds[name]
        self.world.admin.delete_queue(self.world.session, name, False, False)
        if self.rng.random() < 0.5:
            self.some_queue()

    def rewind(self) -> None:
        for name in sorted(self.kinds):
            if "retention" in self.kinds[name]:
                self.settle()
                for fact in self.facts.values():
                    if fact.queue == name:
                        fact.mortal = True
                        fact.gone = False
                queue = self.world.broker.queue(self.world.broker.catalog.destination("/", name).id)
                for lane in queue.lanes:
                    held = set()
                    for taker in self.takers:
                        for one in taker.unacked.held:
                            if one.lane is lane:
                                held |= set(range(one.ordinal, one.ordinal + one.count))
                    self.out[int(lane.chain.target)] = held
                self.world.admin.rewind_queue(self.world.session, name, self.world.loop.ms - 800)

    def pass_time(self) -> None:
        self.world.loop.advance(self.rng.choice([10, 120, 350]))

    def tick(self) -> None:
        self.world.tick()

    def turn(self) -> None:
        self.world.loop.run()

    def checkpoint(self) -> None:
        """Begin a copy in the middle of a batch."""
        for checkpointer in self.world.opener.checkpointers.values():
            checkpointer.begin()

    # ---------------------------------------------------------------------------------------- whole histories

    def live_with_kills(self, steps: int) -> None:
        self.begin()
        for _ in range(steps):
            end = self.rng.random()
            if end < 0.02:
                self.killed()
            elif end < 0.03:
                self.restart()
            elif end < 0.035:
                self.lose_checkpoints()
            else:
                self.step()
        self.settle()
        self.killed()

    def live_with_power_cuts(self, lives: int, steps: int) -> int:
        """Returns how many crash points there were."""
        cuts = 0
        for _ in range(lives):
            self.disk.crash_at = self.disk.operations + self.rng.randrange(1, 400)
            try:
                self.begin()
                for _ in range(steps):
                    self.step()
            except PowerLoss:
                cuts += 1
            self.lose_power()
        self.begin()
        self.settle()
        return cuts
