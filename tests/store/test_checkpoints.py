"""The checkpoint map: transactions, checksums, growth."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from tests.store.helpers import Commits, Later
from trilogue.core.errors import Corrupt, StoreError
from trilogue.store.checkpoints import LmdbCheckpoints
from trilogue.store.worker import DirectPost, InlineWorker, Post, ThreadWorker


def make(path: Path, map_bytes: int = 1 << 30, post: Post | None = None) -> LmdbCheckpoints:
    return LmdbCheckpoints(str(path), map_bytes, post or DirectPost(), InlineWorker())


def test_commit_scan_get_erase(tmp_path: Path) -> None:
    checkpoints = make(tmp_path)
    answers = Commits()
    checkpoints.commit(1, [(b"a1", b"one"), (b"a2", b""), (b"b1", b"three")], [], answers)
    assert answers.commits == [(1, None)]
    assert checkpoints.scan(b"a") == [(b"a1", b"one"), (b"a2", b"")]
    assert len(checkpoints.scan(b"")) == 3
    assert checkpoints.get(b"b1") == b"three"
    assert checkpoints.get(b"zz") is None
    checkpoints.commit(1, [(b"a1", b"new")], [b"a2", b"never there"], answers)
    assert checkpoints.scan(b"a") == [(b"a1", b"new")]
    checkpoints.erase(b"a")
    assert checkpoints.scan(b"") == [(b"b1", b"three")]
    checkpoints.close()
    assert make(tmp_path).scan(b"") == [(b"b1", b"three")]


def test_the_answer_comes_on_the_loop(tmp_path: Path) -> None:
    post = Later()
    checkpoints = make(tmp_path, post=post)
    answers = Commits()
    checkpoints.commit(3, [(b"k", b"v")], [], answers)
    assert answers.commits == []
    post.turn()
    assert answers.commits == [(3, None)]


def test_a_full_map_grows(tmp_path: Path) -> None:
    checkpoints = make(tmp_path, 1 << 20)
    answers = Commits()
    puts = [(b"%08d" % k, bytes([k % 256]) * 2_000) for k in range(3_000)]
    checkpoints.commit(1, puts, [], answers)
    assert answers.commits == [(1, None)]
    assert checkpoints.map_bytes > 1 << 22
    assert checkpoints.scan(b"") == puts
    checkpoints.close()
    again = make(tmp_path, 1 << 20)
    again.commit(1, [(b"x", b"y" * 100_000)], [], answers)
    assert answers.commits == [(1, None), (1, None)]


def test_a_flipped_bit_and_a_swapped_value_are_noticed(tmp_path: Path) -> None:
    checkpoints = make(tmp_path)
    checkpoints.commit(1, [(b"a", b"value"), (b"b", b"value")], [], Commits())
    checkpoints.close()
    with lmdb.open(str(tmp_path), map_size=1 << 30) as env, env.begin(write=True) as transaction:
        stored = transaction.get(b"a")
        transaction.put(b"c", stored[:-1] + b"X")
        transaction.put(b"b", stored)
        transaction.put(b"d", b"abc")
    checkpoints = make(tmp_path)
    assert checkpoints.get(b"a") == b"value"
    for key in (b"b", b"c", b"d"):
        with pytest.raises(Corrupt):
            checkpoints.get(key)
    with pytest.raises(Corrupt):
        checkpoints.scan(b"")
    checkpoints.erase(b"c")
    assert checkpoints.get(b"c") is None


def test_a_failed_commit_is_reported_not_raised(tmp_path: Path) -> None:
    checkpoints = make(tmp_path)
    answers = Commits()
    checkpoints.commit(5, [(b"good", b"v"), (b"k" * 600, b"longer than LMDB allows")], [], answers)
    assert answers.commits[0][0] == 5
    assert isinstance(answers.commits[0][1], StoreError)
    assert checkpoints.scan(b"") == [], "all or nothing"


def test_in_a_thread(tmp_path: Path) -> None:
    checkpoints = LmdbCheckpoints(str(tmp_path), 1 << 30, DirectPost(), ThreadWorker("test"))
    answers = Commits()
    for k in range(20):
        checkpoints.commit(k, [(b"%d" % k, b"v")], [], answers)
    checkpoints.close()
    assert [partition for partition, error in answers.commits if error is None] == list(range(20))
