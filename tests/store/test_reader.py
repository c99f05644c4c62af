"""Reading beside deletion and compaction, and what a reader is told when the disk refuses."""

from __future__ import annotations

from pathlib import Path

from tests.faults.simdisk import SimDisk
from tests.store.helpers import ROOMY, SMALL, Fetched, Node, append
from trilogue.core.batch import read_header
from trilogue.core.errors import StoreError
from trilogue.store.reader import read_batches
from trilogue.store.segment import Segment


def test_nothing_beyond_what_is_written_is_served(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    log = node.open()
    append(log)
    node.round()
    append(log)
    fetched = Fetched()
    log.fetch(0, 10_000, fetched)
    assert (len(fetched.data), fetched.next_offset) == (1, 1)
    log.fetch(1, 10_000, fetched)
    assert (fetched.data, fetched.next_offset, fetched.error) == ([], 1, None)


def test_a_deleted_beginning_is_skipped(tmp_path: Path) -> None:
    node = Node(tmp_path, SMALL)
    log = node.open()
    for _ in range(100):
        append(log)
    node.round()
    log.delete_segments([log.segments()[0].base])
    fetched = Fetched()
    log.fetch(0, 1, fetched)
    assert read_header(fetched.data[0], 0).base == log.start_offset() > 0


def test_a_file_that_vanished_is_an_error_for_the_reader() -> None:
    disk = SimDisk()
    node = Node("/data", ROOMY, disk)
    log = node.open()
    append(log)
    node.round()
    node.journal.files.forget(log.active.path)
    disk.unlink(log.active.path)
    fetched = Fetched()
    log.fetch(0, 1_000, fetched)
    assert isinstance(fetched.error, StoreError)
    assert fetched.data == []


def test_a_descriptor_in_use_survives_deletion(tmp_path: Path) -> None:
    node = Node(tmp_path, SMALL)
    log = node.open()
    for _ in range(60):
        append(log)
    node.round()
    first: Segment = log.segment_list.items[0]
    file = log.segment_list.open(first)
    assert file is not None
    log.delete_segments([first.base])
    assert read_header(node.disk.pread(file.fd, 184, 0), 0).base == 0
    log.segment_list.files.release(file)
    assert read_header(read_batches(log.segment_list, 0, 1).data[0], 0).base == first.end
