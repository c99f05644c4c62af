"""Rounds, and the accidents of RULES 6 and 7: a full disk, a failed write, a failed sync, no descriptors."""

from __future__ import annotations

import random

import pytest

from tests.faults.simdisk import SimDisk
from tests.store.helpers import ROOMY, SMALL, Later, Node, append, read_all
from trilogue.core.errors import StoreError
from trilogue.store.settings import OS, StoreSettings

LOG = "00000000000000000000.log"


def sim(settings: StoreSettings = ROOMY) -> tuple[SimDisk, Node]:
    disk = SimDisk()
    return disk, Node("/data", settings, disk)


def syncs(disk: SimDisk) -> list[str]:
    return [call for call, _ in disk.calls if call in ("fdatasync", "syncfs")]


def after_power_loss(disk: SimDisk, seed: int = 1) -> Node:
    return Node("/data", ROOMY, disk.crash(random.Random(seed)))


@pytest.mark.parametrize(("logs", "expected"), [(1, ["fdatasync"]), (2, ["fdatasync"] * 2), (3, ["syncfs"]), (9, ["syncfs"])])
def test_up_to_two_files_are_synced_singly_and_more_at_once(logs: int, expected: list[str]) -> None:
    disk, node = sim()
    for partition in range(logs):
        append(node.open(partition))
    disk.calls = []
    node.round()
    assert syncs(disk) == expected


def test_an_old_kernel_never_uses_syncfs() -> None:
    disk = SimDisk()
    disk.reports_syncfs = False
    node = Node("/data", ROOMY, disk)
    for partition in range(5):
        append(node.open(partition))
    disk.calls = []
    node.round()
    assert syncs(disk) == ["fdatasync"] * 5


def test_after_a_syncfs_error_only_the_files_that_fail_stop() -> None:
    disk, node = sim()
    logs = [node.open(partition) for partition in range(5)]
    for log in logs:
        append(log)
    node.round()
    for log in logs:
        append(log)
    logs[3].roll()
    node.round()
    for log in logs:
        append(log)
    disk.syncfs_error = True
    disk.sync_errors = {"00000000000000000002.log"}
    result = node.round()
    assert [partition for partition, _ in result.failed] == [3]
    assert [log.synced_offset() for log in logs] == [3, 3, 3, 2, 3]
    with pytest.raises(StoreError):
        append(logs[3])
    for log in (logs[0], logs[4]):
        append(log)
    assert node.round().failed == []


def test_a_new_segment_is_in_its_directory_before_the_first_confirm() -> None:
    for seed in range(20):
        disk, node = sim()
        log = node.open()
        wrote = [append(log)]
        node.round()
        log.roll()
        wrote.append(append(log))
        node.round()
        assert read_all(after_power_loss(disk, seed).open()) == wrote


def test_a_full_disk_is_waited_out_with_the_same_bytes() -> None:
    disk, node = sim()
    log = node.open()
    wrote = [append(log)]
    node.round()
    disk.space = 100
    wrote += [append(log), append(log)]
    node.journal.begin_round()
    assert len(node.answers.results) == 1
    assert len(node.answers.stalls) == 1
    assert disk.size(node.journal.files.acquire(log.active.path).fd) == len(wrote[0]), "cut back to the last good length"
    node.writer.resume()
    assert len(node.answers.stalls) == 1, "told once"
    wrote.append(append(log))
    disk.space = 1 << 20
    node.writer.resume()
    assert node.answers.results[-1].failed == []
    assert log.synced_offset() == 3
    node.round()
    assert read_all(log) == wrote
    assert read_all(after_power_loss(disk).open()) == wrote


def test_power_loss_while_the_disk_is_full_loses_nothing_answered() -> None:
    for seed in range(20):
        disk, node = sim()
        log = node.open()
        wrote = [append(log), append(log)]
        node.round()
        disk.space = 200
        append(log)
        append(log)
        node.journal.begin_round()
        assert read_all(after_power_loss(disk, seed).open())[:2] == wrote


def test_a_failed_write_stops_its_log_and_no_other() -> None:
    disk, node = sim()
    one, two = node.open(1), node.open(2)
    append(one)
    append(two)
    one.roll()
    node.round()
    append(one)
    append(two)
    disk.write_errors = {"00000000000000000001.log"}
    result = node.round()
    assert [partition for partition, _ in result.failed] == [1]
    assert "writing failed" in result.failed[0][1]
    assert (one.written_offset(), one.synced_offset(), two.synced_offset()) == (1, 1, 2)


def test_pages_that_failed_to_be_written_back_are_not_believed_after_a_restart() -> None:
    """RULES 7: the process dies after a sync error, the page cache still shows the data, then the power goes."""
    disk, node = sim()
    log = node.open()
    append(log)
    node.round()
    append(log)
    disk.sync_errors = {LOG}
    assert len(node.round().failed) == 1
    disk.killed()
    node = Node("/data", ROOMY, disk)
    log = node.open()
    seen = read_all(log)
    assert len(seen) == 2, "readers still see what the disk never got"
    seen.append(append(log))
    node.round()
    for seed in range(10):
        assert read_all(after_power_loss(disk, seed).open()) == seen


def test_a_crash_while_the_tail_is_written_again() -> None:
    for point in range(1, 40):
        disk, node = sim()
        log = node.open()
        wrote = [append(log) for _ in range(3)]
        node.round()
        wrote += [append(log) for _ in range(3)]
        node.round()
        disk.killed()
        disk.operations = 0
        disk.crash_at = point
        try:
            Node("/data", ROOMY, disk).open()
        except BaseException as error:
            assert type(error).__name__ == "PowerLoss"
        assert read_all(after_power_loss(disk, point).open()) == wrote


def test_a_crash_on_a_full_disk_does_not_keep_the_log_from_opening() -> None:
    disk, node = sim()
    log = node.open()
    wrote = [append(log) for _ in range(3)]
    node.round()
    disk.killed()
    disk.space = 120
    node = Node("/data", ROOMY, disk)
    assert read_all(node.open()) == wrote


def test_no_descriptors_are_waited_out() -> None:
    disk, node = sim()
    log = node.open()
    wrote = [append(log)]
    disk.descriptors_max = len(disk.fds)
    node.journal.begin_round()
    assert node.answers.results == []
    assert len(node.answers.stalls) == 1
    disk.descriptors_max = len(disk.fds) + 1
    node.writer.resume()
    assert node.answers.results == [], "the file is open, its directory cannot be"
    disk.descriptors_max = 100
    node.writer.resume()
    assert node.answers.results[0].failed == []
    assert read_all(after_power_loss(disk).open()) == wrote


def test_a_dirty_file_is_never_evicted() -> None:
    disk = SimDisk()
    node = Node("/data", StoreSettings(descriptors_max=8), disk)
    logs = [node.open(partition) for partition in range(30)]
    for log in logs:
        append(log)
    disk.syncfs_error = True
    node.round()
    assert all(log.synced_offset() == 1 for log in logs)
    append(logs[0])
    node.round()
    assert len(node.journal.files) <= 30
    assert [len(read_all(log)) for log in logs] == [2] + [1] * 29
    assert len(node.journal.files) <= 8


def test_partial_writes_are_completed() -> None:
    disk, node = sim()
    disk.write_bytes_max = 33
    log = node.open()
    wrote = [append(log) for _ in range(10)]
    node.round()
    assert read_all(log) == wrote


@pytest.mark.parametrize("durability", ["log", "node"])
def test_an_unsynced_log_starts_no_sync(durability: str) -> None:
    disk = SimDisk()
    node = Node("/data", StoreSettings(durability=OS) if durability == "node" else ROOMY, disk)
    log = node.open(1, synced=durability == "node")
    append(log)
    disk.calls = []
    node.round()
    log.roll()
    append(log)
    node.round()
    assert disk.calls == []
    assert log.synced_offset() == 2


def test_the_page_cache_is_dropped_behind_the_tail_unless_somebody_reads() -> None:
    disk, node = sim()
    log = node.open()
    step = b"x" * (16 << 20)
    for _ in range(7):
        append(log, step)
        node.round()
    assert [name for call, name in disk.calls if call == "forget_pages"] == [f"0+{32 << 20}"]
    log.fetched = True
    for _ in range(2):
        append(log, step)
        node.round()
    assert len([name for call, name in disk.calls if call == "forget_pages"]) == 1


def test_while_a_round_runs_the_next_one_collects() -> None:
    post = Later()
    disk = SimDisk()
    node = Node("/data", ROOMY, disk, post)
    log = node.open()
    append(log)
    node.journal.begin_round()
    append(log)
    assert node.journal.dirty()
    with pytest.raises(AssertionError):
        node.journal.begin_round()
    post.turn()
    assert log.synced_offset() == 1
    node.journal.begin_round()
    post.turn()
    assert log.synced_offset() == 2


def test_a_dropped_log_is_gone_and_the_others_are_not() -> None:
    disk, node = sim(SMALL)
    one, two = node.open(1), node.open(2)
    for _ in range(50):
        append(one)
        append(two)
    node.round()
    append(one)
    node.journal.drop(1)
    assert not node.journal.dirty()
    assert node.journal.partitions() == [2]
    assert disk.listdir("/data/logs") == [f"{2:016x}"]
    append(two)
    node.round()
    assert len(read_all(two)) == 51


def test_free_bytes() -> None:
    disk, node = sim()
    disk.space = 12_345
    assert node.journal.free_bytes() == 12_345
