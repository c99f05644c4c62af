from __future__ import annotations

import pathlib
from typing import Any

from tests.cli.server import Client, Embedded

MIB = 1 << 20
SMALL = ("storage.segment_bytes=1 MiB", "limits.message_bytes_max=512 KiB")


def partition_of(node: Embedded, topic: str) -> Any:
    return node.broker.topics[node.broker.catalog.destination("/", topic).id][0]


def fill(client: Client, lines: list[str], already: int = 0) -> None:
    """Publish in small batches: a segment ends between two of them."""
    for at in range(0, len(lines), 25):
        client.say(*lines[at:at + 25])
        client.hear_upto(f"OK {already + at + 25}")


def test_old_segments_of_topics_go(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, [*SMALL, "storage.topic_retention_bytes=1 MiB", 'topics=[{name="young", retention_ms=1000}]']) as node:
        client = node.client()
        assert client.ask("TOPIC t") == "OK"
        body = "x" * 20_000
        fill(client, [f"PUB - t {k}-{body}" for k in range(200)])
        fill(client, [f"PUB - young {k}-{body}" for k in range(100)], 200)
        topic = partition_of(node, "t")
        young = partition_of(node, "young")
        assert node.call(lambda: int(topic.log.start_offset())) == 0
        node.call(node.node.upkeep.sweep)
        node.until(lambda: topic.log.start_offset() > 0)
        assert MIB <= node.call(lambda: sum(int(one.size) for one in topic.log.segments())) < 3 * MIB
        node.call(node.node.scheduler.raise_to, node.call(node.node.scheduler.now_ms) + 60_000)
        node.call(node.node.upkeep.sweep)
        node.until(lambda: young.log.start_offset() > 0)
        assert client.ask("READ t 0").startswith("OK")
        assert int(client.hear().split(" ")[1]) > 0


def test_compacted_topics_keep_the_last_of_each_key(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, [*SMALL, 'topics=[{name="t", cleanup="compact"}]']) as node:
        client = node.client()
        assert client.ask("BIND amq.topic t #") == "OK"
        body = "x" * 20_000
        fill(client, [f"PUB amq.topic key.{k % 3} {k}-{body}" for k in range(200)])
        topic = partition_of(node, "t")
        before = node.call(lambda: sum(int(one.size) for one in topic.log.segments()))
        node.call(node.node.upkeep.sweep)
        node.until(lambda: sum(int(one.size) for one in topic.log.segments()) < before / 2)
        assert client.ask("READ t 0") == "OK"
        numbers = []
        while not numbers or numbers[-1] != 199:
            numbers.append(int(client.hear().split(" ")[2].partition("-")[0]))
        assert numbers == sorted(numbers)
        assert len(numbers) < 120
        assert node.call(lambda: node.node.upkeep.compacting) == {int(topic.id): node.call(lambda: int(topic.log.segment_base()))}


def test_publishers_wait_while_the_disk_is_low(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path, ["storage.checkpoint_interval_ms=10"]) as node:
        upkeep = node.node.upkeep
        upkeep.disk_low_bytes = 1 << 60
        node.until(lambda: node.broker.flusher.blocked)
        client = node.client()
        assert client.ask("DECLARE q durable") == "OK"
        client.say("PUB - q one")
        assert client.hear() == "OK 1"
        client.say("PUB - q two")
        node.call(upkeep.configure, node.config())
        node.until(lambda: not node.broker.flusher.blocked)
        assert client.hear() == "OK 2"
