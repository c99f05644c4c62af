from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.world import MemoryCheckpoints, World, body_of
from tests.faults.simdisk import SimDisk
from trilogue.core.errors import LimitExceeded
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.retained import Retained

TOPICS = ["a", "a/b", "a/b/c", "a//c", "/a", "$SYS/a", "b"]
FILTERS = {
    "a": ["a"], "#": ["a", "a/b", "a/b/c", "a//c", "/a", "b"], "+": ["a", "b"], "a/#": ["a", "a/b", "a/b/c", "a//c"], "a/+": ["a/b"],
    "a/+/c": ["a/b/c", "a//c"], "+/+": ["a/b", "/a"], "+/b/#": ["a/b", "a/b/c"], "$SYS/#": ["$SYS/a"], "$SYS/+": ["$SYS/a"], "+/a": ["/a"], "c": [],
}


@pytest.fixture
def world() -> World:
    return World(Path("/data"), disk=SimDisk(), memory=MemoryCheckpoints())


def message(body: bytes, ttl_ms: int = -1) -> Run:
    span = native_span(b"", body)
    return Run(b"amq.topic", b"k", ORIGIN_NATIVE, [native_span(b"", b"earlier"), span], len(span) + 11, PERSISTENT, 0, ttl_ms)


def found(retained: Retained, topic_filter: str) -> dict[str, bytes]:
    return {topic: body_of(run.spans[0]) for topic, run in retained.matching("/", topic_filter)}


@pytest.mark.parametrize("topic_filter", FILTERS)
def test_filters(world: World, topic_filter: str) -> None:
    for topic in TOPICS:
        world.broker.retained.retain("/", topic, message(topic.encode()))
    assert sorted(found(world.broker.retained, topic_filter)) == sorted(FILTERS[topic_filter])
    assert world.broker.retained.matching("elsewhere", topic_filter) == []


def test_the_last_one_counts_and_survives(world: World) -> None:
    retained = world.broker.retained
    for body in (b"old", b"new"):
        retained.retain("/", "a/b", message(body))
    retained.retain("/", "gone", message(b"x"))
    retained.forget("/", "gone")
    retained.forget("/", "never was")
    for tick in range(3):
        world.loop.run()
        world.crash()
        assert found(world.broker.retained, "#") == {"a/b": b"new"}
        assert world.broker.retained.bytes == sum(world.broker.retained.sizes.values())
        assert list(world.broker.retained.roots["/"].below) == ["a"]
        world.broker.retained.retain("/", f"other{tick}", message(b"y"))
        world.broker.retained.forget("/", f"other{tick}")
        world.tick()


def test_expired_is_not_shown(world: World) -> None:
    world.broker.retained.retain("/", "a", message(b"x", ttl_ms=100))
    assert found(world.broker.retained, "a") == {"a": b"x"}
    world.loop.advance(100)
    assert found(world.broker.retained, "a") == {}


def test_limits(world: World) -> None:
    retained = world.broker.retained
    retained.count_max = 2
    retained.retain("/", "a", message(b"x"))
    retained.retain("/", "b", message(b"x"))
    retained.retain("/", "a", message(b"yy"))                # there already
    with pytest.raises(LimitExceeded):
        retained.retain("/", "c", message(b"x"))
    retained.bytes_max = int(retained.bytes) + 3
    retained.retain("/", "a", message(b"yyyyy"))
    with pytest.raises(LimitExceeded):
        retained.retain("/", "a", message(b"y" * 100))
