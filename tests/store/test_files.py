"""The descriptor cache keeps to its bound, but never closes what is in use or dirty."""

from __future__ import annotations

import errno

import pytest

from tests.faults.simdisk import SimDisk
from trilogue.store.files import Files


def make(descriptors_max: int = 3) -> tuple[SimDisk, Files]:
    disk = SimDisk()
    disk.mkdir("/d")
    return disk, Files(disk, descriptors_max)


def touch(files: Files, *names: str) -> None:
    for name in names:
        files.release(files.acquire(f"/d/{name}", True))


def test_the_least_recently_used_goes_first() -> None:
    disk, files = make()
    touch(files, "a", "b", "c", "a", "d")
    assert [path[3:] for path in files.open_files] == ["c", "a", "d"]
    assert len(disk.fds) == 3


def test_pinned_and_dirty_files_stay() -> None:
    disk, files = make()
    pinned = files.acquire("/d/a", True)
    dirty = files.acquire("/d/b", True)
    dirty.dirty = True
    files.release(dirty)
    touch(files, "c", "d", "e", "f")
    assert {path[3:] for path in files.open_files} == {"a", "b", "f"}
    assert disk.fds[pinned.fd] is not None
    dirty.dirty = False
    files.release(pinned)
    touch(files, "g", "h", "i")
    assert {path[3:] for path in files.open_files} == {"g", "h", "i"}


def test_more_than_the_bound_may_be_in_use_at_once() -> None:
    disk, files = make()
    held = [files.acquire(f"/d/{k}", True) for k in range(10)]
    assert len(files) == 10
    for file in held:
        files.release(file)
    assert len(files) == 3
    assert len(disk.fds) == 3


def test_when_the_process_has_no_descriptors_left_some_of_ours_are_given_back() -> None:
    disk, files = make(100)
    touch(files, "a", "b", "c", "d", "e")
    disk.descriptors_max = 5
    touch(files, "f")
    assert len(disk.fds) <= 5
    assert "/d/f" in files.open_files


def test_without_any_to_give_back_it_is_an_error() -> None:
    disk, files = make(100)
    files.acquire("/d/a", True)
    disk.descriptors_max = 1
    with pytest.raises(OSError) as caught:
        files.acquire("/d/b", True)
    assert caught.value.errno == errno.EMFILE


def test_a_forgotten_file_is_closed_by_the_last_one_to_let_go() -> None:
    disk, files = make()
    file = files.acquire("/d/a", True)
    files.forget("/d/a")
    files.forget("/d/a")
    assert file.fd in disk.fds
    again = files.acquire("/d/a")
    assert again is not file
    files.release(file)
    assert file.fd not in disk.fds
    files.close()
    files.release(again)
    assert disk.fds == {}
