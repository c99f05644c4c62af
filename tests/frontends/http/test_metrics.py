from __future__ import annotations

import pathlib
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.cli.server import PATIENCE_S, Embedded


def scrape(node: Embedded, path: str) -> dict[tuple[str, str], float]:
    """Values by name and by queue or topic."""
    with urllib.request.urlopen(f"http://{node.node.addresses['http']}{path}", timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name.removeprefix("trilogue_"), sample.labels.get("queue", sample.labels.get("topic", ""))): sample.value
            for family in families for sample in family.samples}


def test_totals_and_single_queues(tmp_path: pathlib.Path) -> None:
    with Embedded(tmp_path) as node:
        client = node.client()
        names = [f"q{k}" for k in range(500)]
        client.say(*(f"DECLARE {name} durable" for name in names))
        for _ in names:
            assert client.hear() == "OK"
        assert client.ask("TOPIC t") == "OK"
        client.say("PUB - q1 one", "PUB - q1 two", "PUB - q2 three", "PUB - t four", "PUB - nobody five")
        client.hear_upto("OK 5")
        taker = node.client()
        assert taker.ask("SUB q1 1") == "OK"
        assert taker.hear() == "MSG 1 0 one"
        total = scrape(node, "/metrics")
        for name, value in (("messages_received_total", 5), ("messages_unroutable_total", 1), ("queues", 500), ("topics", 1), ("queue_ready", 2),
                            ("queue_unacknowledged", 1), ("queue_consumers", 1), ("sessions", 2), ("connections", 2), ("publishers_blocked", 0)):
            assert total[name, ""] == value, name
        assert total["disk_free_bytes", ""] > 0
        single = scrape(node, "/metrics/per-object")
        assert single["queue_ready", "q1"] == 1
        assert single["queue_published_total", "q1"] == 2
        assert single["queue_delivered_total", "q1"] == 1
        assert single["queue_ready", "q2"] == 1
        assert single["topic_end_offset", "t"] == 1
        assert len([name for name, _ in single if name == "queue_ready"]) == 500
