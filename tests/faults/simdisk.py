"""A disk in memory that remembers what was not synced, and at a crash drops, tears and reorders any part of it.

It stands below the unmodified store. What a file looks like to a reader (the page cache) and what would survive a power loss are kept
apart: `fdatasync` moves a file's content over, `fsync_dir` a directory's entries, `syncfs` everything. At `crash` each operation that was
not synced happened, did not happen, or happened for some of its sectors.
"""

from __future__ import annotations

import errno
import os
import random

from trilogue.store.disk import Disk

SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """The crash point is reached. Not an `Exception`, because nobody below the test may handle it."""


class SimFile:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.pending: list[tuple[int, bytes | None]] = []      # (position, written bytes) or (size, None): truncated

    def write(self, at: int, data: bytes) -> None:
        put(self.data, at, data)
        self.pending.append((at, data))

    def truncate(self, size: int) -> None:
        resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending = []

    def lose_pages(self) -> None:
        """Write-back failed: the system calls the pages clean, a reader still sees them, the disk never got them."""
        self.pending = []

    def crashed(self, rng: random.Random) -> SimFile:
        data = bytearray(self.durable)
        for at, written in self.pending:
            fate = rng.random()
            if fate < 0.3:
                continue
            if written is None:
                resize(data, at)
            elif fate < 0.6:
                put(data, at, written)
            else:
                tear(rng, data, at, written)
        return SimFile(bytes(data))


class SimFolder:
    def __init__(self) -> None:
        self.entries: dict[str, SimFile | SimFolder] = {}
        self.durable: dict[str, SimFile | SimFolder] = {}
        self.pending: list[tuple[str, str, SimFile | SimFolder | None]] = []    # (name gone, name there, what)

    def change(self, gone: str, there: str, what: SimFile | SimFolder | None) -> None:
        apply(self.entries, gone, there, what)
        self.pending.append((gone, there, what))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending = []

    def crashed(self, rng: random.Random) -> SimFolder:
        entries = dict(self.durable)
        for gone, there, what in self.pending:
            if rng.random() < 0.5:
                apply(entries, gone, there, what)
        out = SimFolder()
        for name, child in entries.items():
            out.entries[name] = child.crashed(rng)
        out.durable = dict(out.entries)
        return out


def apply(entries: dict[str, SimFile | SimFolder], gone: str, there: str, what: SimFile | SimFolder | None) -> None:
    if gone and (what is None or entries.get(gone) is what):
        entries.pop(gone, None)
    if there and what is not None:
        entries[there] = what


def put(data: bytearray, at: int, written: bytes) -> None:
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    data[at:at + len(written)] = written


def resize(data: bytearray, size: int) -> None:
    if len(data) > size:
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def tear(rng: random.Random, data: bytearray, at: int, written: bytes) -> None:
    """Some sectors arrive, some do not; the length may, with zeros or rubbish in the gaps."""
    end = at + len(written)
    if rng.random() < 0.5 and len(data) < end:
        filler = bytes(end - len(data)) if rng.random() < 0.5 else rng.randbytes(end - len(data))
        data.extend(filler)
    start = at
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if rng.random() < 0.5:
            put(data, start, written[start - at:stop - at])
        start = stop


class SimDisk(Disk):
    """Injected faults: `crash_at` (operations until the power goes), `space` (bytes left), `sync_errors` (file names whose next sync
    fails), `syncfs_error`, `write_errors` (file names), `descriptors_max`; `ignores_sync` makes it a disk that lies."""

    def __init__(self, root: SimFolder | None = None) -> None:
        self.root = root or SimFolder()
        self.fds: dict[int, SimFile | SimFolder] = {}
        self.names: dict[int, str] = {}
        self.next_fd = 3
        self.operations = 0
        self.crash_at = -1
        self.space = 1 << 40
        self.sync_errors: set[str] = set()
        self.write_errors: set[str] = set()
        self.syncfs_error = False
        self.reports_syncfs = True
        self.descriptors_max = 1 << 30
        self.ignores_sync = False
        self.write_bytes_max = 1 << 40
        self.calls: list[tuple[str, str]] = []      # every sync, by name

    def crash(self, rng: random.Random) -> SimDisk:
        """The disk as it is found after the power has come back."""
        return SimDisk(self.root.crashed(rng))

    def killed(self) -> None:
        """The process is gone, its descriptors with it; the page cache stays."""
        self.fds = {}
        self.names = {}

    def step(self) -> None:
        self.operations += 1
        if self.operations == self.crash_at:
            raise PowerLoss

    # ---------------------------------------------------------------------------------------- names

    def walk(self, path: str) -> tuple[SimFolder, str]:
        parts = path.strip("/").split("/")
        folder = self.root
        for part in parts[:-1]:
            child = folder.entries.get(part)
            if not isinstance(child, SimFolder):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            folder = child
        return folder, parts[-1]

    def folder(self, path: str) -> SimFolder:
        if path == "/":
            return self.root
        parent, name = self.walk(path)
        child = parent.entries.get(name)
        if not isinstance(child, SimFolder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return child

    def file(self, fd: int) -> SimFile:
        node = self.fds[fd]
        assert isinstance(node, SimFile)
        return node

    def descriptor(self, node: SimFile | SimFolder, path: str) -> int:
        fd = self.next_fd
        self.next_fd += 1
        self.fds[fd] = node
        self.names[fd] = path
        return fd

    def check_descriptors(self) -> None:
        if len(self.fds) >= self.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # ---------------------------------------------------------------------------------------- Disk

    def open(self, path: str, create: bool) -> int:
        self.check_descriptors()
        parent, name = self.walk(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = SimFile()
            parent.change("", name, node)
            self.step()
        assert isinstance(node, SimFile)
        return self.descriptor(node, path)

    def open_dir(self, path: str) -> int:
        self.check_descriptors()
        return self.descriptor(self.folder(path), path)

    def close(self, fd: int) -> None:
        del self.fds[fd]
        del self.names[fd]

    def writev(self, fd: int, buffers: list[bytes], at: int) -> int:
        file = self.file(fd)
        data = b"".join(buffers)[:self.write_bytes_max]
        if os.path.basename(self.names[fd]) in self.write_errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        grows = max(0, at + len(data) - len(file.data))
        if grows > self.space:
            data = data[:len(data) - (grows - self.space)]
            grows = self.space
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.space -= grows
        file.write(at, data)
        self.step()
        return len(data)

    def pread(self, fd: int, size: int, at: int) -> bytes:
        return bytes(self.file(fd).data[at:at + size])

    def size(self, fd: int) -> int:
        return len(self.file(fd).data)

    def truncate(self, fd: int, size: int) -> None:
        file = self.file(fd)
        if len(file.data) != size:
            self.space += len(file.data) - size
            file.truncate(size)
            self.step()

    def fdatasync(self, fd: int) -> None:
        self.step()
        name = os.path.basename(self.names[fd])
        self.calls.append(("fdatasync", name))
        if name in self.sync_errors:
            self.sync_errors.discard(name)
            self.file(fd).lose_pages()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not self.ignores_sync:
            self.file(fd).sync()

    def syncfs(self, fd: int) -> None:
        self.step()
        self.calls.append(("syncfs", ""))
        if self.syncfs_error:
            self.syncfs_error = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not self.ignores_sync:
            sync_tree(self.root)

    def syncfs_reports(self) -> bool:
        return self.reports_syncfs

    def fsync_dir(self, path: str) -> None:
        self.check_descriptors()
        self.step()
        self.calls.append(("fsync_dir", os.path.basename(path)))
        if os.path.basename(path) in self.sync_errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not self.ignores_sync:
            self.folder(path).sync()

    def rename(self, old: str, new: str) -> None:
        parent, name = self.walk(old)
        other, new_name = self.walk(new)
        assert parent is other
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        parent.change(name, new_name, node)
        self.step()

    def unlink(self, path: str) -> None:
        parent, name = self.walk(path)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        parent.change(name, "", None)
        self.step()

    def mkdir(self, path: str) -> None:
        parts = path.strip("/").split("/")
        folder = self.root
        for part in parts:
            child = folder.entries.get(part)
            if child is None:
                child = SimFolder()
                folder.change("", part, child)
                self.step()
            assert isinstance(child, SimFolder)
            folder = child

    def rmdir(self, path: str) -> None:
        self.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(self.folder(path).entries)

    def forget_pages(self, fd: int, at: int, size: int) -> None:
        self.calls.append(("forget_pages", f"{at}+{size}"))

    def free_bytes(self, path: str) -> int:
        return self.space

    def lock(self, fd: int) -> bool:
        return True


def sync_tree(folder: SimFolder) -> None:
    folder.sync()
    for child in folder.entries.values():
        if isinstance(child, SimFolder):
            sync_tree(child)
        else:
            child.sync()
