"""The data directory of one node: who may use it, what format it has, how often it was started, how it was left.

==================  =====================================================================================
`lock`              locked while a process uses the directory; holds its pid
`format`            the version of everything else
`epoch`             the broker's epoch: rises at every start, before anything else is written
`clean`             the mark of a clean shutdown: end, last segment and its size of every log; gone while running
`logs/<id>`         one folder per partition, named by its id in hexadecimal: nothing that a client chose
`checkpoints`       LMDB
==================  =====================================================================================
"""

from __future__ import annotations

import os
from typing import Final

import structlog
from google_crc32c import value as crc_value
from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from trilogue.core.batch import u32, write_u32
from trilogue.core.errors import Corrupt, DataDirInUse, FormatTooNew, StoreError
from trilogue.store.disk import Disk, read_whole, replace_whole, unlink_if_there, write_all

FORMAT: Final = 1
FORMAT_WORDS: Final = "trilogue data format "
MARK_BYTES: Final = 32

logger = structlog.get_logger("store")


class CleanMark:
    """How a log was left: it ended at offset `end`, in the segment `base`, which was `size` bytes long."""

    def __init__(self, end: i64, base: i64, size: i64) -> None:
        self.end: i64 = end
        self.base: i64 = base
        self.size: i64 = size


class DataDir:
    """Made once at start, by which the directory belongs to this process; `close` gives it back."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk: Disk = disk
        self.path: str = path
        self.logs_path: str = f"{path}/logs"
        self.checkpoints_path: str = f"{path}/checkpoints"
        self.epoch: int = 0
        self.marks: dict[int, CleanMark] = {}
        try:
            disk.mkdir(path)
            disk.fsync_dir(os.path.dirname(os.path.abspath(path)))
            self.lock_fd: int = take_lock(disk, path)
            try:
                self.begin()
            except BaseException:
                disk.close(self.lock_fd)
                raise
        except OSError as error:
            raise StoreError(f"data directory {path} cannot be used: {error}") from error

    def begin(self) -> None:
        disk = self.disk
        check_format(disk, self.path)
        disk.mkdir(self.logs_path)
        disk.fsync_dir(self.path)
        self.epoch = raise_epoch(disk, self.path)
        self.marks = take_marks(disk, self.path)
        self.empty_gone()

    def folder_of(self, partition: i64) -> str:
        assert partition >= 0
        return f"{self.logs_path}/{partition:016x}"

    def mark_of(self, partition: i64) -> CleanMark | None:
        return self.marks.get(partition)

    def partitions(self) -> list[int]:
        return partitions_in(self.disk, self.logs_path)

    def empty_gone(self) -> None:
        """Delete what is left of dropped logs."""
        for name in self.disk.listdir(self.logs_path):
            if name.endswith(".gone"):
                folder = f"{self.logs_path}/{name}"
                try:
                    for inner in self.disk.listdir(folder):
                        self.disk.unlink(f"{folder}/{inner}")
                    self.disk.rmdir(folder)
                except OSError as error:
                    logger.warning("dropped log not deleted yet", folder=folder, error=str(error))

    def close(self, marks: dict[int, CleanMark]) -> None:
        """Leave the mark, which says that these logs are whole and synced, and let the directory go."""
        try:
            replace_whole(self.disk, self.path, "clean", encode_marks(marks))
        except OSError as error:
            logger.warning("no mark of a clean shutdown could be left; the next start reads more", error=str(error))
        self.disk.close(self.lock_fd)


def partitions_in(disk: Disk, logs_path: str) -> list[int]:
    out: list[int] = []
    for name in disk.listdir(logs_path):
        if len(name) == 16:
            try:
                out.append(int(name, 16))
            except ValueError:
                continue
    return out


def take_lock(disk: Disk, path: str) -> int:
    fd = disk.open(f"{path}/lock", True)
    if not disk.lock(fd):
        pid = disk.pread(fd, 20, 0).decode("ascii", "replace").strip()
        disk.close(fd)
        raise DataDirInUse(f"data directory {path} is in use by process {pid or 'unknown'}")
    disk.truncate(fd, 0)
    write_all(disk, fd, [f"{os.getpid()}\n".encode()], 0)
    return fd


def check_format(disk: Disk, path: str) -> None:
    try:
        text = read_whole(disk, f"{path}/format").decode("ascii", "replace").strip()
    except FileNotFoundError:
        if "logs" in disk.listdir(path):
            raise Corrupt(f"data directory {path} has logs but no format file") from None
        replace_whole(disk, path, "format", f"{FORMAT_WORDS}{FORMAT}\n".encode())
        return
    number = text[len(FORMAT_WORDS):]
    if not text.startswith(FORMAT_WORDS) or not number.isdigit():
        raise Corrupt(f"{path}/format is damaged: {text[:40]!r}")
    if int(number) < 1:
        raise Corrupt(f"{path}/format is damaged: {text[:40]!r}")
    if int(number) > FORMAT:
        raise FormatTooNew(f"data directory {path} has format {number}; this version reads up to {FORMAT}: it was written by a newer trilogue")


def raise_epoch(disk: Disk, path: str) -> int:
    try:
        text = read_whole(disk, f"{path}/epoch").decode("ascii", "replace").strip()
    except FileNotFoundError:
        text = epoch_text(0)
    number = text.partition(" ")[0]
    # With a checksum: an epoch that fell back would make new hand-offs look like old ones (RULES 11).
    if not number.isdigit() or text != epoch_text(int(number)):
        raise Corrupt(f"{path}/epoch is damaged: {text[:40]!r}")
    epoch = int(number) + 1
    replace_whole(disk, path, "epoch", f"{epoch_text(epoch)}\n".encode())
    return epoch


def epoch_text(epoch: int) -> str:
    crc: i64 = crc_value(str(epoch).encode())
    return f"{epoch} {int(crc):08x}"


def take_marks(disk: Disk, path: str) -> dict[int, CleanMark]:
    """Read the mark of a clean shutdown and remove it, before anything can be written that it does not know of."""
    try:
        data = read_whole(disk, f"{path}/clean")
    except FileNotFoundError:
        return {}
    marks = decode_marks(data)
    if unlink_if_there(disk, f"{path}/clean"):
        disk.fsync_dir(path)
    return marks


def encode_marks(marks: dict[int, CleanMark]) -> bytes:
    w = BytesWriter()
    for partition, mark in marks.items():
        write_i64_be(w, partition)
        write_i64_be(w, mark.end)
        write_i64_be(w, mark.base)
        write_i64_be(w, mark.size)
    crc: i64 = crc_value(w.getvalue())
    write_u32(w, crc)
    return w.getvalue()


def decode_marks(data: bytes) -> dict[int, CleanMark]:
    """A damaged mark is no mark: then the logs are read as after a crash."""
    marks: dict[int, CleanMark] = {}
    n: i64 = len(data) - 4
    if n < 0 or n % MARK_BYTES or crc_value(data[:n]) != u32(data, n):
        logger.warning("the mark of the clean shutdown is damaged and ignored")
        return marks
    at: i64 = 0
    while at < n:
        marks[int(read_i64_be(data, at))] = CleanMark(read_i64_be(data, at + 8), read_i64_be(data, at + 16), read_i64_be(data, at + 24))
        at += MARK_BYTES
    return marks
