from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.world import MemoryCheckpoints, World, body_of
from tests.faults.simdisk import SimDisk
from trilogue.core.topic import TopicPartition, TopicReader


@pytest.fixture
def world() -> World:
    return World(Path("/data"), segment_bytes=4_096, disk=SimDisk(), memory=MemoryCheckpoints())


class Reader(TopicReader):
    def __init__(self, position: int, space: int = 1 << 30) -> None:
        super().__init__(position)
        self.space = space
        self.got: list[tuple[int, bytes]] = []
        self.end: list[object] = []

    def room(self) -> int:
        return self.space

    def deliver(self, partition: object, run: object, start: int, count: int) -> None:
        self.space -= count
        self.got.extend((run.offset + k, body_of(run.spans[k])) for k in range(start, start + count))

    def ended(self, error: object) -> None:
        self.end.append(error)


def topic(world: World) -> TopicPartition:
    world.declare("t", queue_type="stream")
    return next(iter(world.broker.topics.values()))[0]


def read(world: World, position: int, space: int = 1 << 30) -> Reader:
    reader = Reader(position, space)
    world.broker.read_topic(world.session, "t", 0, reader)
    world.loop.run()
    return reader


def test_a_reader_gets_everything_once_and_in_order_from_memory_and_from_the_file(world: World) -> None:
    partition = topic(world)
    early = read(world, 0)
    for k in range(40):
        world.publish("t", b"%d" % k, b"%d+" % k + b"x" * 200)
    late = read(world, 11)
    assert [offset for offset, _ in early.got] == list(range(80))
    assert late.got == early.got[11:]
    assert len(partition.log.segments()) > 1


def test_a_slow_reader_goes_on_where_it_stopped(world: World) -> None:
    partition = topic(world)
    for k in range(10):
        world.publish("t", b"%d" % k, b"%d+" % k)
    reader = read(world, 0, space=3)
    while reader.position < 20:
        assert len(reader.got) == reader.position
        reader.space = 3
        partition.pump(reader)
        world.loop.run()
    assert [offset for offset, _ in reader.got] == list(range(20))


def test_a_hole_at_the_end_is_stepped_over(world: World) -> None:
    """Everything there was deleted: the reader goes on with what comes next instead of asking for ever."""
    partition = topic(world)
    for k in range(60):
        world.publish("t", b"%d" % k + b"x" * 200)
    log = partition.log
    while log.segments()[-1].size:
        world.publish("t", b"x" * 200)
    log.delete_segments([info.base for info in log.segments()[:-1]])
    end = log.end_offset()
    reader = read(world, 5)
    assert (reader.got, reader.position) == ([], end)
    world.publish("t", b"new")
    assert reader.got == [(end, b"new")]


def test_readers_are_told_when_the_partition_fails_or_goes(world: World) -> None:
    partition = topic(world)
    reader = read(world, 0)
    partition.failed("broken")
    assert (len(reader.end), partition.readers) == (1, [])
    assert "broken" in str(reader.end[0])
    world.restart()
    reader = read(world, 0)
    world.admin.delete_queue(world.session, "t", False, False)
    world.loop.run()
    assert reader.end == [None]
