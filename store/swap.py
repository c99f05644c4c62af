"""Replacing closed segments by their compacted form, so that a crash at any point leaves the old ones or the new one.

The new content is written to `<base>.clean` and synced; renamed to `<base>-<end>.swap`, which is the decision; then the segments in
[base, end) go, and it becomes `<base>.log`. A start finishes what was decided and deletes what was not.
"""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.store.disk import Disk, unlink_if_there
from trilogue.store.segment import base_of


def clean_path(folder: str, base: i64) -> str:
    return f"{folder}/{base:020d}.clean"


def swap_name(base: i64, end: i64) -> str:
    return f"{base:020d}-{end:020d}.swap"


def decide_swap(disk: Disk, folder: str, base: i64, end: i64) -> str:
    """The synced `.clean` file is complete and from now on what counts; returns the name to finish with."""
    name = swap_name(base, end)
    disk.rename(clean_path(folder, base), f"{folder}/{name}")
    disk.fsync_dir(folder)
    return name


def remove_replaced(disk: Disk, folder: str, name: str) -> None:
    """All that the decided file replaces, but for the one whose name it takes."""
    base = int(name[:20])
    end = int(name[21:41])
    for other in disk.listdir(folder):
        other_base = base_of(other)
        if base < other_base < end:
            unlink_if_there(disk, f"{folder}/{other}")
            unlink_if_there(disk, f"{folder}/{other_base:020d}.idx")
    unlink_if_there(disk, f"{folder}/{base:020d}.idx")
    # They must be gone for good before the name that says so goes.
    disk.fsync_dir(folder)


def put_in_place(disk: Disk, folder: str, name: str) -> None:
    disk.rename(f"{folder}/{name}", f"{folder}/{name[:20]}.log")


def finish_swap(disk: Disk, folder: str, name: str) -> None:
    """What a start does with a decided file; repeatable."""
    remove_replaced(disk, folder, name)
    put_in_place(disk, folder, name)
    disk.fsync_dir(folder)
