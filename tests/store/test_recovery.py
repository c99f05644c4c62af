"""Torn or corrupt? Every cut and every flipped byte of a log's end, and what proves that something was there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.simdisk import SimDisk
from tests.store.helpers import ROOMY, SMALL, Node, append, read_all
from trilogue.core.batch import restamp
from trilogue.core.errors import Corrupt
from trilogue.store.journal import DiskJournal
from trilogue.store.settings import StoreSettings


def build(path: Path, rounds: list[int], settings: StoreSettings = ROOMY) -> tuple[list[bytes], Path]:
    """A log of so many rounds, each of so many batches, left by a crash; returns its batches and its only segment."""
    node = Node(path, settings)
    log = node.open()
    wrote = []
    for count in rounds:
        wrote += [append(log, bytes([65 + len(wrote)]) * 60) for _ in range(count)]
        node.round()
    node.crash()
    return wrote, Path(log.active.path)


def reopen(path: Path, settings: StoreSettings = ROOMY) -> list[bytes]:
    node = Node(path, settings)
    try:
        return read_all(node.open())
    finally:
        node.crash()


def test_a_cut_at_every_byte_of_the_last_round_is_a_torn_tail(tmp_path: Path) -> None:
    wrote, segment = build(tmp_path, [3, 2])
    good = segment.read_bytes()
    synced = sum(len(data) for data in wrote[:3])
    for size in range(synced, len(good)):
        segment.write_bytes(good[:size])
        whole = 3 if size < synced + len(wrote[3]) else 4
        assert reopen(tmp_path) == wrote[:whole], size
        assert segment.stat().st_size == sum(len(data) for data in wrote[:whole])


def test_a_cut_below_what_a_later_batch_knows_to_be_synced_needs_another_proof(tmp_path: Path) -> None:
    """Nothing in the log itself remembers a clean cut; the checkpoint does."""
    wrote, segment = build(tmp_path, [3, 2])
    segment.write_bytes(b"".join(wrote[:2]))
    node = Node(tmp_path, ROOMY)
    node.journal.expect(1, 3)
    with pytest.raises(Corrupt, match=r"ends at offset 2.*3"):
        node.open()


@pytest.mark.parametrize("region", ["first", "last round"])
def test_a_flipped_bit_at_every_byte(tmp_path: Path, region: str) -> None:
    wrote, segment = build(tmp_path, [2, 1, 2])
    good = segment.read_bytes()
    known = len(wrote[0]) + len(wrote[1]) + len(wrote[2])       # the last round's headers know of this much
    span = range(known) if region == "first" else range(known, len(good))
    for at in span:
        segment.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1:])
        if region == "first":
            with pytest.raises(Corrupt, match=f"{segment.name} at byte .*offset"):
                reopen(tmp_path)
            assert segment.read_bytes() != good, "never repaired silently"
        else:
            assert reopen(tmp_path) in (wrote[:3], wrote[:4])


def test_a_flipped_bit_above_the_last_round_but_below_a_checkpoint_is_corruption(tmp_path: Path) -> None:
    wrote, segment = build(tmp_path, [2, 2])
    good = bytearray(segment.read_bytes())
    good[-5] ^= 1
    segment.write_bytes(good)
    node = Node(tmp_path, ROOMY)
    node.journal.expect(1, 4)
    with pytest.raises(Corrupt, match="was on disk up to offset 4"):
        node.open()
    node.crash()
    assert reopen(tmp_path) == wrote[:3]


def test_after_a_clean_shutdown_every_damage_of_the_tail_is_corruption(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    for _ in range(3):
        append(log)
    node.round()
    segment = Path(log.active.path)
    node.close()
    good = segment.read_bytes()
    mark = (tmp_path / "clean").read_bytes()
    for damaged in (good[:-1], good[:200], good[:-7] + b"1" + good[-6:], b""):
        segment.write_bytes(damaged)
        (tmp_path / "clean").write_bytes(mark)
        with pytest.raises(Corrupt):
            reopen(tmp_path)
    segment.write_bytes(good)
    (tmp_path / "clean").write_bytes(mark)
    assert len(reopen(tmp_path)) == 3


def test_a_lost_log_is_noticed(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    append(node.open())
    node.round()
    node.close()
    for file in (tmp_path / "logs" / f"{1:016x}").iterdir():
        file.unlink()
    with pytest.raises(Corrupt, match="lost"):
        reopen(tmp_path)


def test_a_checkpoint_beyond_the_end_is_proof_of_loss(tmp_path: Path) -> None:
    build(tmp_path, [3])
    node = Node(tmp_path, ROOMY)
    node.journal.expect(1, 3)
    node.open()
    node.crash()
    node = Node(tmp_path, ROOMY)
    node.journal.expect(1, 4)
    with pytest.raises(Corrupt, match="lost"):
        node.open()


def test_a_follower_that_does_not_restamp_would_take_its_torn_tail_for_corruption(tmp_path: Path) -> None:
    """RULES 5, replayed: the leader had synced what the follower had not, and both lost power."""
    wrote, _ = build(tmp_path / "leader", [1, 1, 1])
    torn = bytearray(wrote[1])
    torn[-1] ^= 1

    def follow(path: Path, last: bytes) -> list[bytes]:
        node = Node(path, ROOMY)
        log = node.open()
        log.stage([wrote[0], wrote[1], last], 3, 1_000)
        node.round()
        node.crash()
        Path(log.active.path).write_bytes(wrote[0] + torn + last)
        return reopen(path)

    with pytest.raises(Corrupt):
        follow(tmp_path / "plain", wrote[2])
    assert follow(tmp_path / "restamped", restamp(wrote[2], 0)) == wrote[:1]


def test_a_message_that_looks_like_a_batch_proves_nothing(tmp_path: Path) -> None:
    """A payload may hold a perfect batch that claims to know of a synced future; its own batch is torn behind it."""
    wrote, segment = build(tmp_path, [1])
    other, _ = build(tmp_path / "other", [1, 1, 1])
    node = Node(tmp_path, ROOMY)
    log = node.open()
    append(log, other[2] + b"x" * 200)
    node.round()
    node.crash()
    good = segment.read_bytes()
    segment.write_bytes(good[:-1] + b"y")
    assert reopen(tmp_path) == wrote


def test_a_start_reads_only_the_tail(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, index_interval_bytes=4_096)

    def started() -> DiskJournal:
        node = Node(tmp_path, settings)
        node.open()
        return node.journal

    node = Node(tmp_path, settings)
    log = node.open()
    for _ in range(1_100):
        append(log, b"x" * 4_000)
        node.round()
    size = sum(info.size for info in log.segments())
    node.crash()
    journal = started()
    assert size > 4_000_000
    assert 0 < journal.recovered_bytes < 800_000
    journal.close()
    journal = started()
    assert 0 < journal.recovered_bytes < 800_000


def test_without_any_index_file_the_log_is_the_same(tmp_path: Path) -> None:
    wrote, segment = build(tmp_path, [20, 20, 20], SMALL)
    for index in segment.parent.glob("*.idx"):
        index.unlink()
    assert reopen(tmp_path, SMALL) == wrote


def test_damage_in_the_headers_of_a_closed_segment_refuses_the_log_when_the_index_is_lost(tmp_path: Path) -> None:
    _, segment = build(tmp_path, [20, 20, 20], SMALL)
    first = sorted(segment.parent.glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[150] ^= 1
    first.write_bytes(data)
    sorted(segment.parent.glob("*.idx"))[0].unlink()
    with pytest.raises(Corrupt, match=first.name):
        reopen(tmp_path, SMALL)


def test_an_unsynced_log_is_cut_at_the_first_bad_batch(tmp_path: Path) -> None:
    node = Node(tmp_path, SMALL)
    log = node.open(1, synced=False)
    wrote = []
    for _ in range(60):
        wrote.append(append(log))
        node.round()
    node.crash()
    segment = Path(log.active.path)
    data = bytearray(segment.read_bytes())
    data[len(wrote[0]) + 100] ^= 1
    segment.write_bytes(data)
    node = Node(tmp_path, SMALL)
    assert read_all(node.open(1, synced=False)) == wrote[:log.active.base + 1]


def test_rubbish_after_the_end_is_cut(tmp_path: Path) -> None:
    rng = random.Random(5)
    wrote, segment = build(tmp_path, [2])
    good = segment.read_bytes()
    for _ in range(50):
        segment.write_bytes(good + rng.choice([rng.randbytes(rng.randrange(1, 5_000)), bytes(rng.randrange(1, 5_000)), b"TR" * 500]))
        assert reopen(tmp_path) == wrote
        assert segment.read_bytes() == good


def test_a_foreign_file_name_is_refused() -> None:
    disk = SimDisk()
    node = Node("/data", ROOMY, disk)
    append(node.open())
    node.round()
    disk.close(disk.open(f"/data/logs/{1:016x}/12.log", True))
    disk.killed()
    with pytest.raises(Corrupt, match="not the name of a segment"):
        Node("/data", ROOMY, disk).open()
