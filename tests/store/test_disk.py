"""The real disk, and the small operations built on any disk."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.simdisk import PowerLoss, SimDisk
from trilogue.store.disk import IOV_MAX, OsDisk, kernel_version, read_exactly, read_whole, replace_whole, unlink_if_there, write_all


@pytest.mark.parametrize(("release", "version"), [
    ("5.10.0-28-amd64", (5, 10)), ("6.18.44-x", (6, 18)), ("5.8", (5, 8)), ("4.19.0", (4, 19)), ("5.7-rc1", (5, 7)), ("odd", (0, 0)), ("x.y", (0, 0)),
])
def test_kernel_version(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


def test_os_disk(tmp_path: Path) -> None:
    disk = OsDisk()
    folder = str(tmp_path / "a" / "b")
    disk.mkdir(folder)
    disk.mkdir(folder)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/x", False)
    fd = disk.open(f"{folder}/x", True)
    assert disk.writev(fd, [b"abc", b"def"], 2) == 6
    assert disk.pread(fd, 100, 0) == b"\0\0abcdef"
    assert disk.size(fd) == 8
    disk.truncate(fd, 4)
    disk.fdatasync(fd)
    disk.forget_pages(fd, 0, 4)
    root = disk.open_dir(folder)
    disk.syncfs(root)
    disk.fsync_dir(folder)
    disk.rename(f"{folder}/x", f"{folder}/y")
    assert disk.listdir(folder) == ["y"]
    assert read_whole(disk, f"{folder}/y") == b"\0\0ab"
    assert disk.free_bytes(folder) > 0
    other = disk.open(f"{folder}/y", False)
    assert disk.lock(fd)
    assert not disk.lock(other)
    for number in (fd, root, other):
        disk.close(number)
    assert unlink_if_there(disk, f"{folder}/y")
    assert not unlink_if_there(disk, f"{folder}/y")
    disk.rmdir(folder)
    assert not os.path.exists(folder)


def test_syncfs_of_a_bad_descriptor_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file"):
        OsDisk().syncfs(-1)


def test_write_all_takes_more_buffers_than_the_system_does(tmp_path: Path) -> None:
    disk = OsDisk()
    fd = disk.open(str(tmp_path / "x"), True)
    buffers = [b"%d," % k for k in range(3 * IOV_MAX)]
    assert write_all(disk, fd, buffers, 5) == 5 + sum(map(len, buffers))
    assert read_exactly(disk, fd, 1 << 20, 5) == b"".join(buffers)
    assert len(buffers) == 3 * IOV_MAX, "the caller's list stays as it was: the same bytes may be needed again"
    disk.close(fd)


def test_a_file_is_replaced_as_a_whole_or_not_at_all() -> None:
    for point in range(1, 12):
        disk = SimDisk()
        disk.mkdir("/d")
        disk.fsync_dir("/")
        replace_whole(disk, "/d", "x", b"old" * 400)
        disk.operations = 0
        disk.crash_at = point
        done = True
        try:
            replace_whole(disk, "/d", "x", b"new" * 500)
        except PowerLoss:
            done = False
        for seed in range(10):
            content = read_whole(disk.crash(random.Random(seed)), "/d/x")
            assert content == b"new" * 500 or (not done and content == b"old" * 400)
