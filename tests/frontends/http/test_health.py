from __future__ import annotations

import concurrent.futures
import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cli.server import PATIENCE_S, Embedded
from trilogue.core.flusher import Flusher
from trilogue.core.health import HEALTH_ID
from trilogue.core.ports import RoundDone, RoundResult


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[Embedded]:
    with Embedded(tmp_path) as node:
        yield node


def ask(node: Embedded, path: str = "/health/ready") -> tuple[int, dict[str, str]]:
    try:
        with urllib.request.urlopen(f"http://{node.node.addresses['http']}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_ready_means_written_and_read(node: Embedded) -> None:
    before = node.call(lambda: int(node.node.health.partition.log.synced_offset()))
    assert ask(node) == (200, {"status": "ok"})
    assert node.call(lambda: int(node.node.health.partition.log.synced_offset())) > before


def test_many_questions_at_once_have_one_answer(node: Embedded) -> None:
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(node), range(40)))
    assert answers == [(200, {"status": "ok"})] * 40


def test_not_ready_while_publishers_are_blocked(node: Embedded) -> None:
    node.call(node.broker.flusher.block, "the disk is nearly full")
    assert ask(node) == (503, {"status": "failed", "reason": "the disk is nearly full"})
    assert ask(node, "/health/live") == (200, {"status": "ok"})
    node.call(node.broker.flusher.unblock)
    assert ask(node)[0] == 200


def test_not_ready_once_a_partition_has_stopped(node: Embedded) -> None:
    shard = node.broker.shards[1]
    node.call(shard.failed, "sync failed: I/O error")
    assert ask(node) == (503, {"status": "failed", "reason": "partition 17 is stopped: sync failed: I/O error"})


class FailingRounds(RoundDone):
    """Stands between journal and flusher, and has every round of the health partition fail."""

    def __init__(self, flusher: Flusher) -> None:
        self.flusher = flusher

    def round_done(self, result: RoundResult) -> None:
        self.flusher.round_done(RoundResult([(HEALTH_ID, "sync failed: I/O error")]))

    def round_stalled(self, reason: str) -> None:
        raise AssertionError(reason)


def test_not_ready_if_the_probe_itself_fails(node: Embedded) -> None:
    node.call(node.node.store.journal.attach, FailingRounds(node.broker.flusher))
    assert ask(node) == (503, {"status": "failed", "reason": "writing failed: sync failed: I/O error"})
    assert ask(node)[0] == 503


def test_not_ready_while_going_down(node: Embedded) -> None:
    node.broker.draining = True
    assert ask(node) == (503, {"status": "failed", "reason": "the broker is shutting down"})
