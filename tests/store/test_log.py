"""A log through its port: what is staged, written and synced when, and what can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.helpers import ROOMY, SMALL, Fetched, Later, Node, append, batch, read_all
from trilogue.core.batch import read_header
from trilogue.core.errors import Corrupt
from trilogue.store.settings import StoreSettings


def test_nothing_is_there_before_the_round_has_ended(tmp_path: Path) -> None:
    post = Later()
    node = Node(tmp_path, ROOMY, post=post)
    log = node.open()
    append(log)
    assert (log.end_offset(), log.written_offset(), log.synced_offset()) == (1, 0, 0)
    assert node.journal.dirty()
    node.journal.begin_round()
    assert not node.journal.dirty()
    assert (log.written_offset(), log.synced_offset()) == (0, 0)
    assert log.read(0, 1_000) == []
    post.turn()
    assert (log.written_offset(), log.synced_offset()) == (1, 1)
    assert len(log.read(0, 1_000)) == 1
    assert node.answers.results[0].failed == []


def test_everything_staged_comes_back_in_order(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    wrote = []
    for k in range(200):
        wrote.append(append(log, b"%d" % k * 20, count=1 + k % 3, time_ms=1_000 + k))
        if k % 7 == 0:
            node.round()
    node.round()
    assert len(log.segments()) > 5
    assert read_all(log) == wrote
    assert [info.end for info in log.segments()][:-1] == [info.base for info in log.segments()][1:]


@pytest.mark.parametrize("clean", [True, False])
def test_the_same_log_after_a_restart(tmp_path: Path, clean: bool) -> None:
    node = Node(tmp_path)
    log = node.open()
    wrote = []
    for _ in range(150):
        wrote.append(append(log))
        node.round()
    segments = [(info.base, info.end, info.size, info.last_time_ms) for info in log.segments()]
    if clean:
        node.close()
    else:
        node.crash()
    node = Node(tmp_path)
    log = node.open()
    assert read_all(log) == wrote
    assert log.end_offset() == log.synced_offset() == 150
    assert [(info.base, info.end, info.size, info.last_time_ms) for info in log.segments()] == segments
    wrote.append(append(log))
    node.round()
    assert read_all(log) == wrote


def test_fetch_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    for _ in range(60):
        append(log, count=5)
    node.round()
    for offset in range(0, 300, 7):
        fetched = Fetched()
        log.fetch(offset, 1, fetched)
        assert fetched.error is None
        assert len(fetched.data) == 1
        header = read_header(fetched.data[0], 0)
        assert header.base <= offset <= header.last
        assert fetched.next_offset == header.last + 1
    fetched = Fetched()
    log.fetch(300, 1_000, fetched)
    assert (fetched.data, fetched.next_offset, fetched.error, fetched.calls) == ([], 300, None, 1)


def test_fetch_keeps_to_its_size_but_gives_at_least_one_batch(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    append(log, b"l" * 300_000)
    for _ in range(50):
        append(log)
    node.round()
    assert [len(item) for item in log.read(0, 10)] == [300_084]
    assert len(log.read(1, 184 * 3)) == 3
    assert len(log.read(1, 184 * 3 + 183)) == 3
    assert len(log.read(1, 1_000_000)) == 50


def test_offset_for_time(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    for k in range(300):
        append(log, time_ms=1_000 + 10 * k)
    assert log.offset_for_time(0) == 0
    node.round()
    append(log, time_ms=50_000)
    for k in range(300):
        assert log.offset_for_time(1_000 + 10 * k) == k
        assert log.offset_for_time(1_000 + 10 * k - 3) == k
    assert log.offset_for_time(40_000) == 300
    assert log.offset_for_time(50_001) == 301


def test_the_segment_of_the_next_batch_is_known_before_it_is_staged(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    bases = []
    for _ in range(100):
        bases.append(log.segment_base())
        append(log)
    node.round()
    for offset, base in enumerate(bases):
        holder = [info for info in log.segments() if info.base <= offset < info.end]
        assert [info.base for info in holder] == [base]


def test_an_old_segment_is_closed_by_time(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    append(log, time_ms=1_000)
    append(log, time_ms=1_000 + ROOMY.segment_ms - 1)
    assert log.segment_base() == 0
    append(log, time_ms=1_000 + ROOMY.segment_ms)
    assert log.segment_base() == 3


def test_deleted_segments_are_gone_wherever_they_lay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    wrote = [append(log) for _ in range(200)]
    node.round()
    infos = log.segments()
    gone = [infos[0], infos[3], infos[4]]
    log.delete_segments([info.base for info in gone])
    kept = [item for item in wrote if not any(info.base <= read_header(item, 0).base < info.end for info in gone)]
    assert log.start_offset() == infos[1].base
    assert read_all(log) == kept
    assert read_header(log.read(infos[3].base, 1)[0], 0).base == infos[5].base
    node.crash()
    node = Node(tmp_path)
    assert read_all(node.open()) == kept


def test_offsets_do_not_repeat_when_all_closed_segments_are_deleted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    while log.segment_base() == 0:
        append(log)
    end = log.end_offset()
    log.delete_segments([0])
    assert log.start_offset() == 0, "not closed on disk yet"
    node.round()
    log.delete_segments([0])
    assert log.start_offset() == end
    node.crash()
    node = Node(tmp_path)
    log = node.open()
    assert (log.start_offset(), log.end_offset()) == (end, end)
    node.close()
    node = Node(tmp_path)
    assert node.open().end_offset() == end


@pytest.mark.parametrize("offset", [0, 1, 57, 100, 199])
def test_truncate(tmp_path: Path, offset: int) -> None:
    node = Node(tmp_path)
    log = node.open()
    wrote = [append(log, count=2) for _ in range(100)]
    node.round()
    log.truncate(offset)
    kept = [item for item in wrote if read_header(item, 0).last < offset]
    assert log.end_offset() == 2 * len(kept)
    assert read_all(log) == kept
    kept.append(append(log))
    node.round()
    assert read_all(log) == kept
    node.crash()
    node = Node(tmp_path)
    assert read_all(node.open()) == kept


def test_a_large_flush_is_indexed_inside(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    data = [batch(k) for k in range(100)]
    parts: list[bytes] = []
    for item in data:
        parts += [item[:84], item[84:]]
    log.stage(parts, 100, 1_000)
    parts = [b"".join(batch(100 + k) for k in range(100))]
    log.stage(parts, 200, 1_000)
    index = log.active.index
    assert index is not None
    assert index.count > 50
    assert [index.positions[k] for k in range(index.count)] == [index.offsets[k] * 184 for k in range(index.count)]
    node.round()
    assert len(read_all(log)) == 200


def test_a_flipped_bit_is_an_error_for_the_reader(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    for _ in range(20):
        append(log)
    node.round()
    path = Path(log.active.path)
    good = path.read_bytes()
    for at in range(184 * 10, 184 * 11):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
        fetched = Fetched()
        log.fetch(10, 1, fetched)
        assert isinstance(fetched.error, Corrupt)
        assert fetched.data == []
        fetched = Fetched()
        log.fetch(9, 184, fetched)
        assert fetched.error is None or isinstance(fetched.error, Corrupt)
        assert fetched.data == ([] if fetched.error else [good[184 * 9:184 * 10]])
    path.write_bytes(good)
    assert len(read_all(log)) == 20


def test_a_wrong_index_file_is_noticed_and_rebuilt(tmp_path: Path) -> None:
    node = Node(tmp_path)
    log = node.open()
    wrote = [append(log) for _ in range(100)]
    node.round()
    node.crash()
    folder = Path(log.segment_list.folder)
    indexes = sorted(folder.glob("*.idx"))
    other = indexes[1].read_bytes()
    indexes[0].write_bytes(other[:-32] + indexes[0].read_bytes()[-32:])
    indexes[2].unlink()
    node = Node(tmp_path)
    log = node.open()
    assert read_all(log, 1) == wrote
    for offset in range(99, -1, -1):
        assert log.read(offset, 1) == [wrote[offset]]


def test_an_unsynced_log_counts_as_synced_when_written(tmp_path: Path) -> None:
    node = Node(tmp_path, SMALL)
    log = node.open(7, synced=False)
    wrote = [append(log) for _ in range(100)]
    node.round()
    assert log.synced_offset() == log.written_offset() == 100
    node.crash()
    node = Node(tmp_path)
    assert read_all(node.open(7, synced=False)) == wrote


def test_a_start_reads_little_even_after_large_batches(tmp_path: Path) -> None:
    node = Node(tmp_path, StoreSettings())
    log = node.open()
    for _ in range(20):
        append(log, bytes(1 << 20))
        node.round()
    node.crash()
    node = Node(tmp_path, StoreSettings())
    assert node.open().end_offset() == 20
    assert node.journal.recovered_bytes < 8 << 20
    node.crash()
