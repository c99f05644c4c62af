"""Every system call that the store makes, behind one class, so that a simulated disk can stand below the unmodified store.

Errors are `OSError`, as the system raises them; what they mean is decided by the callers. Methods may be called from any thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

IOV_MAX: Final = 1024
SYNCFS_REPORTS_SINCE: Final = (5, 8)
# A full quota, and a full table of descriptors, pass as a full disk does: by waiting.
WAITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


@mypyc_attr(allow_interpreted_subclasses=True)
class Disk(ABC):
    @abstractmethod
    def open(self, path: str, create: bool) -> int:
        """A descriptor for reading and writing; `FileNotFoundError` if it is not there and `create` is false."""

    @abstractmethod
    def open_dir(self, path: str) -> int: ...

    @abstractmethod
    def close(self, fd: int) -> None: ...

    @abstractmethod
    def writev(self, fd: int, buffers: list[bytes], at: int) -> int:
        """Write at a position; returns how many bytes were taken, which may be fewer than given."""

    @abstractmethod
    def pread(self, fd: int, size: int, at: int) -> bytes: ...

    @abstractmethod
    def size(self, fd: int) -> int: ...

    @abstractmethod
    def truncate(self, fd: int, size: int) -> None: ...

    @abstractmethod
    def fdatasync(self, fd: int) -> None: ...

    @abstractmethod
    def syncfs(self, fd: int) -> None:
        """Sync the whole file system that `fd` is on, directories included."""

    @abstractmethod
    def syncfs_reports(self) -> bool:
        """Does `syncfs` return write-back errors here? If not it proves nothing (RULES 7)."""

    @abstractmethod
    def fsync_dir(self, path: str) -> None: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    @abstractmethod
    def unlink(self, path: str) -> None: ...

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Nothing happens if it is there already."""

    @abstractmethod
    def rmdir(self, path: str) -> None: ...

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; `FileNotFoundError` if there is none."""

    @abstractmethod
    def forget_pages(self, fd: int, at: int, size: int) -> None:
        """Drop this range from the page cache."""

    @abstractmethod
    def free_bytes(self, path: str) -> int: ...

    @abstractmethod
    def lock(self, fd: int) -> bool:
        """Take the file for this process until it is closed; false if another process has it."""


class OsDisk(Disk):
    """The real one."""

    def __init__(self) -> None:
        self.libc: ctypes.CDLL = ctypes.CDLL(None, use_errno=True)

    def open(self, path: str, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT if create else flags, 0o640)

    def open_dir(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def writev(self, fd: int, buffers: list[bytes], at: int) -> int:
        return os.pwritev(fd, buffers, at)

    def pread(self, fd: int, size: int, at: int) -> bytes:
        return os.pread(fd, size, at)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def syncfs(self, fd: int) -> None:
        while self.libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))

    def syncfs_reports(self) -> bool:
        return kernel_version(os.uname().release) >= SYNCFS_REPORTS_SINCE and hasattr(self.libc, "syncfs")

    def fsync_dir(self, path: str) -> None:
        fd = self.open_dir(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, 0o750, exist_ok=True)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def forget_pages(self, fd: int, at: int, size: int) -> None:
        os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def kernel_version(release: str) -> tuple[int, int]:
    """The first two numbers of a release such as `5.10.0-28-amd64`; (0, 0) if it does not begin so."""
    parts = release.split(".")
    if len(parts) < 2 or not parts[0].isdigit():
        return 0, 0
    minor = ""
    for letter in parts[1]:
        if not letter.isdigit():
            break
        minor += letter
    return int(parts[0]), int(minor) if minor else 0


def write_all(disk: Disk, fd: int, buffers: list[bytes], at: i64) -> i64:
    """Write until nothing is left, however often the system takes less; returns the position after it."""
    left = buffers
    while left:
        taken: i64 = disk.writev(fd, left[:IOV_MAX], at)
        if taken <= 0:
            raise OSError(errno.EIO, "a write took nothing")
        at += taken
        k: i64 = 0
        n: i64 = len(left)
        while k < n and taken >= len(left[k]):
            taken -= len(left[k])
            k += 1
        left = left[k:]
        if taken:
            left[0] = left[0][taken:]
    return at


def read_whole(disk: Disk, path: str) -> bytes:
    fd = disk.open(path, False)
    try:
        return read_exactly(disk, fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def read_exactly(disk: Disk, fd: int, size: i64, at: i64) -> bytes:
    """`size` bytes, or fewer only where the file ends."""
    data = disk.pread(fd, size, at)
    if len(data) == size or not data:
        return data
    parts = [data]
    have: i64 = len(data)
    while have < size:
        data = disk.pread(fd, size - have, at + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """A new file with this content, synced (its directory is not)."""
    fd = disk.open(path, True)
    try:
        disk.truncate(fd, 0)
        if data:
            write_all(disk, fd, [data], 0)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)


def replace_whole(disk: Disk, folder: str, name: str, data: bytes) -> None:
    """Put a file in place so that a crash leaves the old content or the new, never a mixture."""
    write_whole(disk, f"{folder}/{name}.new", data)
    disk.rename(f"{folder}/{name}.new", f"{folder}/{name}")
    disk.fsync_dir(folder)


def unlink_if_there(disk: Disk, path: str) -> bool:
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    return True
