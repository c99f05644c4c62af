"""The descriptor cache: as many partitions as you like, a bounded number of open files.

A file is pinned while somebody uses it. A dirty one is never closed: its descriptor is the only place where the system reports that
writing back its pages has failed (RULES 7). Used by all threads; one lock, held for no longer than an `open`.
"""

from __future__ import annotations

import threading

from trilogue.store.disk import NO_DESCRIPTOR, Disk


class File:
    """One open file. `dirty` belongs to the sync thread, `pins` to `Files`."""

    def __init__(self, path: str, fd: int) -> None:
        self.path: str = path
        self.fd: int = fd
        self.pins: int = 0
        self.dirty: bool = False
        self.forgotten: bool = False        # out of the cache already: the last one to let go closes it


class Files:
    def __init__(self, disk: Disk, descriptors_max: int) -> None:
        self.disk: Disk = disk
        self.descriptors_max: int = descriptors_max
        self.open_files: dict[str, File] = {}       # least recently used first
        self.lock: threading.Lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.open_files)

    def acquire(self, path: str, create: bool = False) -> File:
        """Open or from the cache, pinned. Give it back with `release`."""
        with self.lock:
            file = self.open_files.pop(path, None)
            if file is None:
                file = File(path, self.open(path, create))
            self.open_files[path] = file
            file.pins += 1
            return file

    def open(self, path: str, create: bool) -> int:
        if len(self.open_files) >= self.descriptors_max:
            self.evict(len(self.open_files) - self.descriptors_max + 1)
        while True:
            try:
                return self.disk.open(path, create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                if not self.evict(self.quarter()):
                    raise

    def quarter(self) -> int:
        """Others in the process need descriptors too: when they run out, give a quarter of ours back, not just one."""
        return 1 + len(self.open_files) // 4

    def give_back(self) -> None:
        with self.lock:
            self.evict(self.quarter())

    def evict(self, count: int) -> bool:
        victims = [file for file in self.open_files.values() if file.pins == 0 and not file.dirty][:count]
        for file in victims:
            del self.open_files[file.path]
            self.disk.close(file.fd)
        return len(victims) > 0

    def release(self, file: File) -> None:
        with self.lock:
            file.pins -= 1
            assert file.pins >= 0
            if file.pins == 0:
                if file.forgotten:
                    self.disk.close(file.fd)
                elif len(self.open_files) > self.descriptors_max:
                    self.evict(1)

    def forget(self, path: str) -> None:
        """The file of this name is gone or another one now: the next `acquire` opens it anew."""
        with self.lock:
            file = self.open_files.pop(path, None)
            if file is not None:
                file.forgotten = True
                if file.pins == 0:
                    self.disk.close(file.fd)

    def close(self) -> None:
        with self.lock:
            for file in self.open_files.values():
                file.forgotten = True
                if file.pins == 0:
                    self.disk.close(file.fd)
            self.open_files = {}
