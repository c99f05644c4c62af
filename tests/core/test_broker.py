"""A message from publish to delivery, through the whole core and a real store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


def numbered(lo: int, hi: int) -> list[bytes]:
    return [b"m%d" % k for k in range(lo, hi)]


def test_published_before_and_after_a_consumer_arrives(world: World) -> None:
    world.declare("q")
    world.publish("q", *numbered(0, 3))
    taker = world.consume("q")
    assert taker.got == numbered(0, 3)
    world.publish("q", *numbered(3, 5))
    assert taker.got == numbered(0, 5)
    assert taker.again == [False] * 5
    assert world.writer.sure == 5


def test_acknowledged_is_gone_after_a_restart_and_the_rest_is_not(world: World) -> None:
    world.declare("q")
    taker = world.consume("q")
    world.publish("q", *numbered(0, 10))
    taker.ack(3, multiple=True)
    taker.ack(7)
    world.loop.advance(200)
    world.restart()
    taker = world.consume("q")
    assert taker.got == [b"m3", b"m4", b"m5", b"m7", b"m8", b"m9"]
    assert all(taker.again)
    world.publish("q", b"new")
    assert taker.again[-1] is False


def test_crash_keeps_what_was_confirmed(world: World) -> None:
    world.declare("q")
    world.publish("q", *numbered(0, 10))
    assert world.writer.sure == 10
    world.publish("q", *numbered(10, 20), run=False)
    world.crash()
    taker = world.consume("q")
    assert taker.got == numbered(0, 10)


def test_returned_messages_keep_their_place(world: World) -> None:
    world.declare("q")
    first = world.consume("q", prefetch=5)
    world.publish("q", *numbered(0, 10))
    assert first.got == numbered(0, 5)
    first.ack(2)
    first.leave()
    second = world.consume("q")
    assert second.got == [b"m0", b"m2", b"m3", b"m4", b"m5", b"m6", b"m7", b"m8", b"m9"]
    assert second.again == [True] * 5 + [False] * 4      # m5 took the place that the acknowledgement had freed


def test_prefetch_bounds_what_is_out(world: World) -> None:
    world.declare("q")
    taker = world.consume("q", prefetch=3)
    world.publish("q", *numbered(0, 10))
    assert taker.got == numbered(0, 3)
    taker.ack(1)
    assert taker.got == numbered(0, 4)


def test_a_burst_is_shared_evenly(world: World) -> None:
    world.declare("q")
    takers = [world.consume("q") for _ in range(2)]
    world.publish("q", *numbered(0, 10))
    assert [len(taker.got) for taker in takers] == [5, 5]


def test_backlog_larger_than_memory_is_read_from_the_log(tmp_path: Path) -> None:
    world = World(tmp_path / "data", window=20_000)
    world.declare("q")
    bodies = [b"%05d" % k + b"x" * 200 for k in range(2000)]
    for k in range(0, 2000, 50):
        world.publish("q", *bodies[k:k + 50])
    taker = world.consume("q", prefetch=100)
    while len(taker.got) < 2000:
        before = len(taker.got)
        taker.ack(taker.tag, multiple=True)
        world.loop.advance(1)
        assert len(taker.got) > before
    assert taker.got == bodies
    world.restart()
    assert world.broker.queue(taker.queue.id).waiting() == 100


def test_checkpoints_shorten_recovery_and_change_nothing(world: World) -> None:
    world.declare("q")
    taker = world.consume("q", prefetch=50)
    for k in range(0, 200, 10):
        world.publish("q", *numbered(k, k + 10))
        if k % 30 == 0:
            taker.ack(taker.tag, multiple=True)
            world.tick()
    world.publish("q", *numbered(200, 210))
    world.loop.advance(200)
    state = chain_state(world)
    replayed_all = world.opener.replayed_bytes
    world.crash()
    assert chain_state(world) == state
    assert world.opener.replayed_bytes < 20_000 + replayed_all
    world.stop()
    for name in ("data.mdb", "lock.mdb"):
        (world.path / "checkpoints" / name).unlink()
    world.start()
    assert chain_state(world) == state


def chain_state(world: World) -> list[object]:
    out = []
    for shard in world.broker.shards:
        for id, queue in sorted(shard.queues.items()):
            for lane in queue.lanes:
                chain = lane.chain
                out.append((id, chain.next, chain.floor, chain.done.lo, chain.done.hi, chain.delivered_to, chain.size, chain.counts))
        out.append((shard.liveness.total, {base: n for base, n in shard.liveness.live.items() if n}))
    return out


def test_priorities_go_first(world: World) -> None:
    world.declare("q", max_priority=5)
    world.publish("q", b"low", priority=0)
    world.publish("q", b"high", priority=9)
    world.publish("q", b"mid", priority=3)
    assert world.consume("q").got == [b"high", b"mid", b"low"]


def test_expired_messages_are_dropped_at_the_head(world: World) -> None:
    queue = world.declare("q")
    world.publish("q", b"short", ttl_ms=100)
    world.publish("q", b"long", ttl_ms=10_000)
    world.loop.advance(150)
    assert queue.ready() == 1
    assert world.consume("q").got == [b"long"]


def test_dead_letters_cross_shards_and_count_their_deaths(world: World) -> None:
    from trilogue.core.deaths import deaths_of
    world.declare("dlq")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dlq", message_ttl=50)
    world.publish("q", *numbered(0, 3))
    world.loop.advance(100)
    taker = world.consume("dlq")
    assert taker.got == numbered(0, 3)
    assert deaths_of(taker.runs[0].notes)[0][:3] == ["q", "expired", 1]
    assert world.broker.queue(world.broker.catalog.destination("/", "q").id).waiting() == 0
    for shard in world.broker.shards:
        assert not shard.outbox.sources()


def test_rejected_messages_are_dead_lettered_after_a_crash_too(world: World) -> None:
    world.declare("dlq")
    world.declare("q", dead_letter_exchange="", dead_letter_routing_key="dlq")
    taker = world.consume("q")
    world.publish("q", *numbered(0, 3))
    taker.nack(2, requeue=False)
    world.loop.run()
    world.crash()
    assert world.consume("dlq").got == [b"m1"]
    assert world.consume("q").got == [b"m0", b"m2"]


def test_length_limit_drops_the_head(world: World) -> None:
    queue = world.declare("q", max_length=3)
    world.publish("q", *numbered(0, 5))
    assert queue.ready() == 3
    assert world.consume("q").got == numbered(2, 5)


def test_full_queue_refuses(world: World) -> None:
    world.declare("q", max_length=2, overflow="reject-publish")
    world.publish("q", *numbered(0, 4))
    assert world.writer.lost_only == [3, 4]
    assert world.consume("q").got == numbered(0, 2)


def test_delivery_limit(world: World) -> None:
    world.declare("dlq")
    world.declare("q", delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="dlq")
    taker = world.consume("q")
    world.publish("q", b"poison")
    taker.nack(1)
    taker.nack(2)
    world.loop.run()
    assert taker.got == [b"poison"] * 2
    assert world.consume("dlq").got == [b"poison"]


def test_single_active_consumer(world: World) -> None:
    world.declare("q", single_active_consumer=True)
    first, second = world.consume("q"), world.consume("q")
    world.publish("q", *numbered(0, 4))
    assert (len(first.got), len(second.got)) == (4, 0)
    first.leave()
    assert second.got == numbered(0, 4)


def test_consumer_priority(world: World) -> None:
    world.declare("q")
    low, high = world.consume("q"), world.consume("q", prefetch=2, priority=10)
    world.publish("q", *numbered(0, 4))
    assert (high.got, low.got) == (numbered(0, 2), numbered(2, 4))


def test_purge(world: World) -> None:
    queue = world.declare("q")
    taker = world.consume("q", prefetch=2)
    world.publish("q", *numbered(0, 10))
    assert world.admin.purge_queue(world.session, "q") == 8
    assert (queue.ready(), queue.waiting()) == (0, 2)
    taker.ack(2, multiple=True)
    world.restart()
    assert world.consume("q").got == []


def test_transient_queue_is_gone_after_a_restart(world: World) -> None:
    world.declare("t", durable=False)
    world.publish("t", b"x")
    assert world.consume("t").got == [b"x"]
    world.restart()
    assert world.broker.catalog.find_destination("/", "t") is None


def test_non_persistent_is_confirmed_at_once(world: World) -> None:
    world.declare("q")
    world.publish("q", b"x", persistent=False, run=False)
    assert world.writer.sure_only == [(1, 1)]


def test_fanout_over_shards_is_confirmed_when_all_are_safe(world: World) -> None:
    for k in range(6):
        world.declare(f"q{k}")
        world.admin.bind(world.session, "amq.fanout", f"q{k}", "", {}, False)
    world.publish("", b"x", exchange="amq.fanout")
    assert world.writer.sure == 1
    assert all(world.consume(f"q{k}").got == [b"x"] for k in range(6))


def test_interned_route_survives_the_loss_of_checkpoints(world: World) -> None:
    for k in range(12):
        world.declare(f"q{k}")
        world.admin.bind(world.session, "amq.fanout", f"q{k}", "", {}, False)
    world.publish("", b"x", exchange="amq.fanout")
    world.tick()
    world.publish("", b"y", exchange="amq.fanout")
    world.crash()
    assert all(world.consume(f"q{k}").got == [b"x", b"y"] for k in range(12))


def test_delayed_message_arrives_when_due_also_after_a_restart(world: World) -> None:
    from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
    world.declare("q")
    for delay, body in ((500, b"later"), (5000, b"much later")):
        span = native_span(b"", body)
        world.broker.publish_delayed(world.session, world.writer, Run(b"", b"q", ORIGIN_NATIVE, [span], len(span), PERSISTENT), delay, True)
    world.loop.run()
    assert world.writer.sure == 2
    taker = world.consume("q")
    world.loop.advance(400)
    assert taker.got == []
    world.loop.advance(200)
    assert taker.got == [b"later"]
    taker.ack(1)
    world.loop.advance(200)
    world.tick()
    world.crash()
    taker = world.consume("q")
    assert taker.got == []
    world.loop.advance(10_000)
    assert taker.got == [b"much later"]


def test_topic_reads_by_offset_only_what_is_safe(world: World) -> None:
    from trilogue.core.topic import TopicReader

    class Reader(TopicReader):
        def __init__(self, position: int) -> None:
            super().__init__(position)
            self.got: list[bytes] = []

        def room(self) -> int:
            return 1 << 30

        def deliver(self, partition: object, run: object, start: int, count: int) -> None:
            from world import body_of
            self.got.extend(body_of(span) for span in run.spans[start:start + count])

        def ended(self, error: object) -> None:
            raise AssertionError(error)

    world.declare("t", queue_type="stream")
    world.publish("t", *numbered(0, 5))
    reader = Reader(0)
    world.broker.read_topic(world.session, "t", 0, reader)
    world.loop.run()
    assert reader.got == numbered(0, 5)
    world.publish("t", *numbered(5, 8), run=False)
    assert reader.got == numbered(0, 5)
    world.loop.run()
    assert reader.got == numbered(0, 8)
    world.restart()
    late = Reader(3)
    world.broker.read_topic(world.session, "t", 0, late)
    world.loop.run()
    assert late.got == numbered(3, 8)


def test_stragglers_are_carried_forward(tmp_path: Path) -> None:
    world = World(tmp_path / "data", segment_bytes=32_768, shards=1)
    world.declare("q")
    keep = world.consume("q")
    for k in range(100):
        bodies = [b"%d-%d" % (k, j) + b"x" * 400 for j in range(80)]
        world.publish("q", *bodies)
    assert len(world.broker.shards[0].log.segments()) > 90
    kept = []
    for tag in range(1, len(keep.got) + 1):
        if tag % 80 == 40:
            kept.append(keep.got[tag - 1])
        else:
            keep.ack(tag)
    world.loop.advance(200)
    for _ in range(130):
        world.tick()
    assert len(world.broker.shards[0].log.segments()) <= 3
    keep.leave()
    assert world.consume("q").got == kept
    world.crash()
    assert world.consume("q").got == kept


def test_queue_deleted_and_declared_again_is_empty(world: World) -> None:
    world.declare("q")
    world.publish("q", b"old")
    world.admin.delete_queue(world.session, "q", False, False)
    world.declare("q")
    assert world.consume("q").got == []
    world.restart()
    assert world.consume("q").got == []


def test_rewind_brings_back_what_was_consumed(world: World) -> None:
    world.declare("q", retention=60_000)
    taker = world.consume("q")
    for k in range(4):
        world.publish("q", b"m%d" % k)
        world.loop.advance(1000)
    since = world.loop.ms - 2500
    taker.ack(4, multiple=True)
    world.loop.advance(200)
    assert world.admin.rewind_queue(world.session, "q", since) == 2
    world.loop.run()
    assert taker.got[4:] == [b"m2", b"m3"]


def test_too_much_unsynced_holds_the_publisher(tmp_path: Path) -> None:
    world = World(tmp_path / "data", unsynced_max=1000)
    world.declare("q")
    world.publish("q", b"x" * 2000, run=False)
    assert world.writer.holding
    world.loop.run()
    assert not world.writer.holding


def test_retained_message_with_a_long_topic_survives_a_checkpoint(world: World) -> None:
    from trilogue.core.errors import InvalidArgument
    from trilogue.core.message import ORIGIN_NATIVE, Run, native_span
    span = native_span(b"", b"kept")
    topic = "a/" * 2000 + "b"
    world.broker.retain(world.session, topic, Run(b"amq.topic", b"a", ORIGIN_NATIVE, [span], len(span)), False)
    world.tick()
    world.tick()
    world.crash()
    assert [found for found, _ in world.broker.retained.matching("/", "a/#")] == [topic]
    with pytest.raises(InvalidArgument):
        world.broker.retain(world.session, "x" * 65_535, Run(b"amq.topic", b"a", ORIGIN_NATIVE, [span], len(span)), False)


def test_deleting_a_topic_that_was_just_written_harms_nobody(world: World) -> None:
    world.declare("q")
    world.declare("t", queue_type="stream")
    world.publish("t", b"x", run=False)
    world.admin.delete_queue(world.session, "t", False, False)
    world.publish("q", b"y")
    assert world.consume("q").got == [b"y"]
    assert world.writer.lost


def test_stopped_shard_refuses_and_others_go_on(world: World) -> None:
    for k in range(6):
        world.declare(f"q{k}")
        world.admin.bind(world.session, "amq.fanout", f"q{k}", "", {}, False)
    world.broker.shards[0].failed("test")
    world.publish("", b"x", exchange="amq.fanout")
    assert world.writer.lost_only == [1]


def test_delivery_resumes_on_append_after_a_backlog(world: World) -> None:
    world.declare("q")
    world.publish("q", b"old")
    taker = world.consume("q")
    world.publish("q", b"new", run=False)
    assert taker.got == [b"old", b"new"]


def test_full_queue_is_refused_and_not_confirmed(world: World) -> None:
    world.declare("q", max_length=1, overflow="reject-publish")
    world.publish("q", b"a", persistent=False)
    world.publish("q", b"b", persistent=False)
    assert world.writer.lost_only == [2]
    assert (2, 2) not in world.writer.sure_only
