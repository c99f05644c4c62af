"""After a crash, the tail that nobody knows to be synced is read from the page cache, whose pages may have failed to reach the disk once
and count as clean now (RULES 7). So it is written again: to a file of its own first, synced, and from there back into the segment.

The copy, `<base>-<position>.tail`, exists only while the segment may be cut short; a start that finds one begins by putting it in place.
"""

from __future__ import annotations

import errno
from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import Corrupt
from trilogue.store.disk import Disk, read_exactly, unlink_if_there, write_all

COPY_BYTES: Final = 8 << 20


def rewrite_tail(disk: Disk, folder: str, base: i64, fd: int, at: i64, end: i64) -> None:
    name = f"{base:020d}-{at:020d}.tail"
    try:
        copy_out(disk, fd, f"{folder}/{name}.new", at, end)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # A crash on a full disk must not keep the log from opening: writing the same bytes over themselves takes no space.
        unlink_if_there(disk, f"{folder}/{name}.new")
        copy(disk, fd, at, fd, at, end - at)
        disk.fdatasync(fd)
        return
    disk.rename(f"{folder}/{name}.new", f"{folder}/{name}")
    disk.fsync_dir(folder)
    put_back(disk, folder, name)


def copy_out(disk: Disk, fd: int, path: str, at: i64, end: i64) -> None:
    out = disk.open(path, True)
    try:
        disk.truncate(out, 0)
        copy(disk, fd, at, out, 0, end - at)
        disk.fdatasync(out)
    finally:
        disk.close(out)


def put_back(disk: Disk, folder: str, name: str) -> None:
    """Make the segment end with the tail in this file. Nothing may be appended before the file is gone for good."""
    base = name[:20]
    at = int(name[21:41])
    source = disk.open(f"{folder}/{name}", False)
    try:
        fd = disk.open(f"{folder}/{base}.log", False)
        try:
            if disk.size(fd) < at:
                raise Corrupt(f"{folder}/{base}.log is shorter than the {at} bytes that its saved tail follows")
            disk.truncate(fd, at)
            copy(disk, source, 0, fd, at, disk.size(source))
            disk.fdatasync(fd)
        finally:
            disk.close(fd)
    finally:
        disk.close(source)
    disk.unlink(f"{folder}/{name}")
    disk.fsync_dir(folder)


def copy(disk: Disk, source: int, source_at: i64, target: int, target_at: i64, size: i64) -> None:
    done: i64 = 0
    while done < size:
        data = read_exactly(disk, source, min(COPY_BYTES, size - done), source_at + done)
        if not data:
            raise OSError(errno.EIO, "a file became shorter while it was copied")
        write_all(disk, target, [data], target_at + done)
        done += len(data)
