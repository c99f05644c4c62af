"""The fine print, rule by rule: each test replays the accident that its rule prevents. (2 belongs to replicas, 14 to transactions.)"""

from __future__ import annotations

import copy
import random

import pytest

from tests.core.driver import Census, check_books
from tests.core.world import MemoryCheckpoints, World
from tests.faults.simdisk import PowerLoss, SimDisk
from trilogue.core.batch import RECORDS_AT, check_body, read_header, restamp, seal
from trilogue.core.clock import NS_PER_MS, Clock
from trilogue.core.connection import Connection
from trilogue.core.errors import Corrupt, StoreError
from trilogue.core.frontend import Context, Door, FlowSettings, StreamFrontend, Verifier
from trilogue.core.health import Health, HealthPartition
from trilogue.core.message import ORIGIN_NATIVE, Run, native_span
from trilogue.core.partition import HandOffSender
from trilogue.core.record import REASON_EXPIRED, Letter, Number, Removed
from trilogue.core.refused import RefusedLog


def simulated(**options: int) -> World:
    return World("/data", disk=SimDisk(), memory=MemoryCheckpoints(), **options)


def copy_of(world: World, crash_at: int = -1) -> World:
    """Another node on what the first one's disk and checkpoints are now, as after kill -9."""
    disk = copy.deepcopy(world.disk)
    disk.killed()
    disk.operations = 0
    other = World.__new__(World)
    other.__dict__.update(world.__dict__)
    other.disk = disk
    other.memory = MemoryCheckpoints(dict(world.memory.values))
    other.ms = world.loop.ms
    other.start()
    disk.crash_at = disk.operations + crash_at if crash_at > 0 else -1
    return other


def bodies(lo: int, hi: int, size: int = 0) -> list[bytes]:
    return [b"m%d" % k + b"x" * size for k in range(lo, hi)]


def drained(world: World, name: str) -> list[bytes]:
    taker = world.consume(name)
    world.loop.advance(50)
    got = taker.got
    taker.leave()
    return got


def shard_of(world: World, name: str) -> object:
    return world.broker.shard_of(world.broker.catalog.destination("/", name).id)


def dead_letter_pair(world: World, **dead: object) -> None:
    """Queue `q` in another shard than `dead`, where its dead letters go."""
    world.declare("dead", **dead)
    name = next(name for name in ("q", "r", "s", "t") if world.admin.place(name) != shard_of(world, "dead").id)
    world.declare(name, dead_letter_exchange="", dead_letter_routing_key="dead")
    world.source = name


# ------------------------------------------------------------------------------------------------ checkpoints, segments, recovery

def stragglers() -> tuple[World, list[bytes]]:
    """A node with one message left in each of several segments."""
    world = simulated(segment_bytes=4_096, shards=1)
    world.declare("q")
    taker = world.consume("q")
    kept = []
    for k in range(8):
        sent = bodies(k * 20, k * 20 + 20, 200)
        world.publish("q", *sent)
        for tag in range(k * 20 + 2, k * 20 + 21):
            taker.ack(tag)
        kept.append(sent[0])
    world.loop.advance(200)
    return world, kept


def test_rule_1_power_lost_while_stragglers_are_carried_and_segments_go() -> None:
    """1: a segment goes only when the older of two checkpoints shows nothing live in it."""
    world, kept = stragglers()
    assert len(world.broker.shards[0].log.segments()) > 5
    rng = random.Random(1)
    cuts = 0
    for crash_at in range(1, 60, 2):
        other = copy_of(world, crash_at)
        try:
            for _ in range(12):
                other.tick()
        except PowerLoss:
            cuts += 1
        other.lose_power(rng)
        other.start()
        assert drained(other, "q") == kept
    assert cuts > 15
    for _ in range(20):
        world.tick()
    assert len(world.broker.shards[0].log.segments()) <= 3
    assert drained(copy_of(world), "q") == kept


def test_rule_1_what_a_hand_off_or_a_delay_needs_is_live() -> None:
    world = simulated(segment_bytes=4_096, shards=1)
    world.declare("dead", max_length=0, overflow="reject-publish")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    span = native_span(b"", b"delayed")
    world.broker.publish_delayed(world.session, world.writer, Run(b"", b"later", ORIGIN_NATIVE, [span], len(span), 1), 100_000, True)
    taker = world.consume("q")
    world.publish("q", b"letter")
    taker.nack(1, requeue=False)
    for k in range(8):
        world.publish("q", *bodies(k * 20, k * 20 + 20, 200))
        taker.ack(taker.tag, multiple=True)
        world.tick()
    for _ in range(10):
        world.tick()
    shard = world.broker.shards[0]
    assert shard.log.start_offset() > 0
    assert sorted(Census(world).under_way()) == [b"delayed", b"letter"]
    world = copy_of(world)
    assert sorted(Census(world).under_way()) == [b"delayed", b"letter"]
    world.declare("later")
    world.loop.advance(120_000)
    assert drained(world, "later") == [b"delayed"]
    check_books(world, Census(world))


def test_rule_3_routes_are_defined_again_in_every_segment() -> None:
    """3: without any checkpoint, messages that name an interned route are still found."""
    world = simulated(segment_bytes=4_096, shards=1)
    for k in range(7):
        world.declare(f"q{k}")
        world.admin.bind(world.session, "amq.fanout", f"q{k}", "", {}, False)
    sent = bodies(0, 60, 300)
    for body in sent:
        world.publish("", body, exchange="amq.fanout")
    assert len(world.broker.shards[0].log.segments()) > 3
    world.loop.run()
    world.memory.values = {}
    world = copy_of(world)
    assert all(drained(world, f"q{k}") == sent for k in range(7))


def test_rule_3_a_route_that_was_forgotten_while_a_checkpoint_was_being_copied() -> None:
    """3: recovery begins where the copy began, and that may be in an earlier segment than where it ended."""
    world = simulated(segment_bytes=4_096, shards=1)
    for k in range(120):                        # more than one slice of a copy
        world.declare(f"q{k:03}")
    for k in range(6):
        world.admin.bind(world.session, "amq.fanout", f"q{k:03}", "", {}, False)
    world.publish("", b"first", exchange="amq.fanout")
    sent = [b"first"]
    checkpointer = world.opener.checkpointers[world.broker.shards[0].id]
    assert checkpointer.begin()
    rest, world.loop.soon = world.loop.soon, []
    segment = world.broker.shards[0].segment
    while world.broker.shards[0].segment == segment:
        sent.append(b"%d" % len(sent) + b"x" * 1_000)
        world.publish("", sent[-1], exchange="amq.fanout")
    world.loop.soon += rest
    world.loop.run()
    assert not checkpointer.busy
    world = copy_of(world)
    assert [drained(world, f"q{k:03}") for k in range(6)] == [sent] * 6


def test_rule_4_a_checkpoint_beyond_the_end_of_the_log_is_proof_of_loss() -> None:
    world = simulated()
    world.declare("q")
    world.publish("q", b"old")
    earlier = copy.deepcopy(world.disk)
    world.publish("q", b"new")
    world.tick()
    world.disk = earlier
    world.disk.killed()
    with pytest.raises(Corrupt, match="messages are lost"):
        world.start()


def test_rule_4_metadata_survives_a_restart_and_one_new_checkpoint() -> None:
    """4: after a start one slot is written anew, and must be complete before it counts."""
    world = simulated()
    world.declare("old")
    world.tick()
    world.tick()
    world = copy_of(world)
    world.declare("new")
    world.tick()
    world = copy_of(world)
    assert {"old", "new"} <= set(world.broker.catalog.vhosts["/"].destinations)


def test_rule_5_a_follower_stamps_its_own_synced_to() -> None:
    records = b"records"
    batch = seal(records, 10, 12, 3, 10, 1_000, 3) + records
    stamped = restamp(batch, 4)
    header = read_header(stamped, 0)
    assert (header.synced_to, header.base, header.last, header.epoch) == (4, 10, 12, 3)
    check_body(stamped, 0, header)
    assert stamped[RECORDS_AT:] == records
    assert stamped[56:60] == batch[56:60]


def test_rule_6_a_full_disk_holds_publishers_and_loses_nothing() -> None:
    """6: the same bytes are written again until they fit."""
    world = simulated()
    world.declare("q")
    world.publish("q", b"before")
    world.disk.space = 10
    world.publish("q", *bodies(0, 20))
    world.publish("q", b"more")
    assert world.writer.sure == 1
    assert world.writer.holding
    world.disk.space = 1 << 30
    world.journal.writer.resume()
    world.loop.run()
    assert (world.writer.sure, world.writer.holding) == (22, False)
    world = copy_of(world)
    assert drained(world, "q") == [b"before", *bodies(0, 20), b"more"]


def test_rule_6_a_checkpoint_that_does_not_fit_is_written_later() -> None:
    world = simulated()
    world.declare("q")
    world.publish("q", b"m")
    checkpointer = world.opener.checkpointers[shard_of(world, "q").id]
    real = checkpointer.store
    checkpointer.store = FullCheckpoints(world.loop)
    world.tick()
    assert (checkpointer.committed, shard_of(world, "q").stopped) == (-1, "")
    world.publish("q", b"n")
    checkpointer.store = real
    world.loop.advance(1_500)
    assert checkpointer.committed >= 0
    world = copy_of(world)
    assert drained(world, "q") == [b"m", b"n"]


class FullCheckpoints(MemoryCheckpoints):
    def __init__(self, loop: object) -> None:
        super().__init__()
        self.loop = loop

    def commit(self, partition: int, puts: object, deletes: object, done: object) -> None:
        done.checkpoint_done(partition, StoreError("no space left"))


def test_rule_7_a_sync_error_stops_its_partition_and_no_other() -> None:
    """7: nothing of the failed round, nor of what was collected meanwhile, is confirmed; everybody else goes on."""
    world = simulated()
    world.declare("bad")
    good = next(f"g{k}" for k in range(9) if world.admin.place(f"g{k}") != shard_of(world, "bad").id)
    world.declare(good)
    taker = world.consume("bad")
    world.publish("bad", b"safe")
    world.disk.sync_errors = {"0" * 20 + ".log"}
    failing, late = type(world.writer)(), type(world.writer)()
    world.publish("bad", b"lost", writer=failing, run=False)
    world.loop.turn()                           # the round has failed, and nobody knows it yet
    world.publish("bad", b"collected meanwhile", writer=late, run=False)
    world.publish(good, b"x", run=False)
    world.loop.run()
    assert (failing.sure, len(failing.lost), len(late.lost)) == (0, 1, 1)
    assert world.writer.sure == 2
    assert taker.gone
    assert shard_of(world, "bad").stopped
    for held in taker.unacked.take_all():       # answers that come too late harm nobody
        held.lane.owner.settle(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
    world.publish("bad", b"refused")
    assert world.writer.lost_only == [3]
    world.loop.advance(500)
    world.publish(good, b"y")
    assert drained(world, good) == [b"x", b"y"]


def test_rule_8_what_is_kept_stays_live_until_it_is_released() -> None:
    world = simulated(segment_bytes=4_096, shards=1)
    world.declare("q", retention=30_000)
    taker = world.consume("q")
    sent = bodies(0, 60, 300)
    for k in range(0, 60, 6):
        world.publish("q", *sent[k:k + 6])
    taker.ack(60, multiple=True)
    begin = world.loop.ms
    for _ in range(8):
        world.tick()
    world = copy_of(world)
    assert world.broker.shards[0].log.start_offset() == 0
    taker = world.consume("q")
    assert world.admin.rewind_queue(world.session, "q", begin - 1_000) == 60
    world.loop.run()
    assert (taker.got, set(taker.again)) == (sent, {True})
    taker.ack(60, multiple=True)
    for _ in range(40):
        world.tick()
    assert world.broker.shards[0].log.start_offset() > 0
    assert world.admin.rewind_queue(world.session, "q", begin - 1_000) == 0


def test_rule_9_broker_time_is_never_below_what_a_log_says() -> None:
    clock = Clock(0, 5_000 * NS_PER_MS)
    clock.raise_to(9_000)
    assert clock.read(NS_PER_MS, 5_001 * NS_PER_MS) >= 9_000


# ------------------------------------------------------------------------------------------------ transient shard

def test_rule_10_written_counts_as_synced_and_dead_segments_go() -> None:
    world = simulated(segment_bytes=4_096)
    world.declare("t", durable=False)
    taker = world.consume("t")
    world.disk.calls = []
    for k in range(10):
        world.publish("t", *bodies(k * 10, k * 10 + 10, 200))
    assert not [call for call in world.disk.calls if call[0] in ("fdatasync", "syncfs")]
    assert len(world.broker.transient.log.segments()) > 3
    taker.ack(100, multiple=True)
    world.loop.advance(200)
    world.tick()
    assert len(world.broker.transient.log.segments()) == 1


def test_rule_10_a_transient_target_whose_epoch_ended_counts_as_answered() -> None:
    world = simulated()
    world.declare("t", durable=False)
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="t")
    taker = world.consume("q")
    world.publish("q", b"letter")
    taker.nack(1, requeue=False)
    world.loop.turn()                           # the removal is on disk, the hand-off is not sent
    world = copy_of(world)
    world.loop.advance(2_000)
    check_books(world, Census(world))
    assert not Census(world).under_way()


# ------------------------------------------------------------------------------------------------ hand-off

class Sender(HandOffSender):
    def __init__(self) -> None:
        self.answers: list[tuple[int, bool]] = []

    def answered(self, partition: int, number: Number, accepted: bool) -> None:
        self.answers.append((number.offset, accepted))


def letter(body: bytes) -> Run:
    span = native_span(b"", body)
    return Run(b"", b"dead", ORIGIN_NATIVE, [span], len(span))


def test_rule_11_only_the_next_number_is_taken_and_a_duplicate_is_answered_when_it_is_safe() -> None:
    world = simulated()
    queue = world.declare("dead")
    shard = shard_of(world, "dead")
    sender = Sender()
    first, second, third = Number(1, 5, 0), Number(1, 5, 1), Number(2, 3, 0)
    targets = [queue.id << 8]
    assert shard.take_in(99, first, None, None, letter(b"a"), targets, sender)
    assert not shard.take_in(99, third, second, None, letter(b"c"), targets, sender)       # overtakes the second
    assert shard.take_in(99, first, None, None, letter(b"a"), targets, sender)             # again, before its record is on disk
    assert sender.answers == []
    world.loop.run()
    assert sender.answers == [(5, True), (5, True)]
    assert shard.take_in(99, second, first, first, letter(b"b"), targets, sender)
    assert shard.take_in(99, third, second, first, letter(b"c"), targets, sender)
    world.loop.run()
    world.tick()
    world = copy_of(world)
    shard = shard_of(world, "dead")
    assert not shard.take_in(99, Number(2, 9, 0), None, None, letter(b"x"), targets, sender)    # the mark is in the checkpoint
    assert shard.take_in(99, third, second, second, letter(b"c"), targets, sender)
    world.loop.run()
    assert drained(world, "dead") == [b"a", b"b", b"c"]


def test_rule_11_power_lost_anywhere_in_a_hand_off() -> None:
    """11: several effects in one record, each exactly once at the other side."""
    world = simulated()
    dead_letter_pair(world)
    taker = world.consume(world.source)
    world.publish(world.source, *bodies(0, 5))
    rng = random.Random(2)
    cuts = 0
    for crash_at in range(1, 25):
        other = copy_of(world, crash_at)
        taker = other.consume(world.source)
        try:
            for held in taker.unacked.take_all():
                held.lane.owner.reject(held.lane, held.ordinal, held.count, held.bytes_of(0, held.count))
            other.loop.advance(300)
            other.tick()
            other.tick()
        except PowerLoss:
            cuts += 1
        other.lose_power(rng)
        other.start()
        other.loop.advance(300)
        assert drained(other, world.source) + drained(other, "dead") == bodies(0, 5)
    assert cuts > 8


def test_rule_12_a_refused_letter_stays_and_blocks_nobody() -> None:
    world = simulated()
    dead_letter_pair(world, max_length=1, overflow="reject-publish")
    name = next(f"d{k}" for k in range(9) if world.admin.place(f"d{k}") == shard_of(world, "dead").id)
    world.declare(name)
    world.declare(world.source + "2", dead_letter_exchange="", dead_letter_routing_key=name)
    source = shard_of(world, world.source)
    taker = world.consume(world.source)
    world.publish(world.source, *bodies(0, 3))
    for tag in (1, 2, 3):
        taker.nack(tag, requeue=False)
    world.loop.run()
    assert len(source.outbox.pairs[shard_of(world, "dead").id].refused) == 2
    other = world.consume(world.source + "2")
    world.publish(world.source + "2", b"free")
    other.nack(1, requeue=False)
    world.loop.run()
    assert drained(world, name) == [b"free"]
    world = copy_of(world)                      # who is refused is tried again after a start, too
    got = []
    for _ in range(6):
        taker = world.consume("dead", no_ack=True)
        got += taker.got
        taker.leave()
        world.loop.advance(1_500)
    assert sorted(got) == bodies(0, 3)


def test_rule_12_a_refusal_that_the_sender_never_heard_of_is_repeated() -> None:
    """12: the answer to a duplicate is the one that was logged. (Else the sender would give the message up for stored.)"""
    world = simulated()
    dead_letter_pair(world, max_length=0, overflow="reject-publish")
    taker = world.consume(world.source)
    world.publish(world.source, b"letter")
    taker.nack(1, requeue=False)
    source, target = shard_of(world, world.source), shard_of(world, "dead")
    while source.id not in target.refused or target.count:
        world.loop.turn()                       # until the refusal is written, and its answer on the way
    assert source.outbox.pairs[target.id].pending
    world = copy_of(world)
    world.loop.advance(100)
    assert Census(world).under_way() == [b"letter"]
    world.tick()
    world.tick()
    world = copy_of(world)
    assert Census(world).under_way() == [b"letter"]


def test_rule_12_retries_do_not_multiply() -> None:
    world = simulated()
    dead_letter_pair(world, max_length=0, overflow="reject-publish")
    taker = world.consume(world.source)
    for k in range(10):
        world.publish(world.source, b"%d" % k)
        taker.nack(k + 1, requeue=False)
        world.loop.advance(50)
    rounds = world.broker.flusher.rounds
    world.loop.advance(10_000)
    assert world.broker.flusher.rounds - rounds <= 10 * 4


def test_rule_12_targets_that_no_longer_exist_are_dropped() -> None:
    world = simulated()
    dead_letter_pair(world)
    taker = world.consume(world.source)
    world.publish(world.source, b"letter")
    taker.nack(1, requeue=False)
    world.admin.delete_queue(world.session, "dead", False, False)
    world.loop.advance(300)
    assert not Census(world).under_way()
    check_books(world, Census(world))


def test_rule_12_a_topic_deleted_while_letters_are_on_their_way() -> None:
    world = simulated()
    world.declare("topic", queue_type="stream")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="topic")
    taker = world.consume("q")
    world.publish("q", *bodies(0, 3))
    for tag in (1, 2, 3):
        taker.nack(tag, requeue=False)
    shard = shard_of(world, "q")
    pair = None
    while pair is None or not pair.sent:
        world.loop.turn()
        pair = next(iter(shard.outbox.pairs.values()), None)
    world.admin.delete_queue(world.session, "topic", False, False)
    world.loop.advance(300)
    world.publish("q", b"more")
    assert not Census(world).under_way()


def test_rule_13_an_effect_acts_only_on_what_the_queue_still_owns() -> None:
    """13: else two dead letters for one message."""
    world = simulated()
    dead_letter_pair(world)
    world.publish(world.source, *bodies(0, 4))
    shard = shard_of(world, world.source)
    queue = world.broker.queue(world.broker.catalog.destination("/", world.source).id)
    chain = queue.lanes[0].chain
    offset, _ = chain.extent(0, shard.source.store, shard.source.prefix)
    dead = world.broker.catalog.destination("/", "dead")
    letters = [Letter(dead.shard, [dead.id << 8], b"", b"dead", b"")]
    for lo, hi in ((1, 2), (0, 3)):
        shard.append(Removed(chain.target, REASON_EXPIRED, 0, [lo], [hi], letters, offset + lo))
    world.loop.run()
    world = copy_of(world)
    assert sorted(drained(world, "dead")) == bodies(0, 3)
    assert drained(world, world.source) == bodies(3, 4)


# ------------------------------------------------------------------------------------------------ flow

class Pipe:
    def __init__(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else ("127.0.0.1", 1)

    def fileno(self) -> int:
        return 9

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Worker(Connection):
    """Consumes and publishes on one connection; what it is sent is what it publishes, or `ack`."""

    def __init__(self, frontend: StreamFrontend) -> None:
        super().__init__(frontend)
        self.owed = 0
        self.done: list[object] = []

    def received(self, data: bytes) -> None:
        if data == b"ack":
            self.owed -= 1
            self.adjust_reading()
        elif self.must_park():
            self.park(data, len(data))
        else:
            self.done.append(data)

    def unacknowledged(self) -> int:
        return self.owed

    def unpark(self, item: object) -> None:
        self.done.append(item)


class NoVerifier(Verifier):
    def verify(self, login: object, waiter: object) -> None: ...


class Workers(StreamFrontend):
    def connection(self) -> Worker:
        return Worker(self)


def test_rule_30_a_held_worker_can_still_acknowledge() -> None:
    """30: else a full disk never heals."""
    world = simulated()
    health = Health(world.broker, HealthPartition(9, RefusedLog(""), world.loop, world.broker.flusher, 1))
    flow = FlowSettings(1 << 20, 10)
    context = Context("test", world.broker, world.admin, health, None, NoVerifier(), Door(-1), flow, "/", {}, None)
    worker = Workers(context).connection()
    pipe = Pipe()
    worker.connection_made(pipe)
    worker.enter(world.session.identity, "/", "test")
    worker.hold()
    assert not pipe.reading                     # it holds nothing: it need not be read
    worker.release()
    worker.owed = 2
    worker.hold()
    assert pipe.reading
    worker.data_received(b"ack")
    worker.data_received(b"publish")
    assert (pipe.reading, worker.done) == (True, [])
    worker.data_received(b"publish too")
    assert not pipe.reading                     # enough is parked
    worker.release()
    assert (pipe.reading, worker.done) == (True, [b"publish", b"publish too"])
