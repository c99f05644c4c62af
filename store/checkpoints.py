"""Checkpoints in LMDB: one environment per node, one synced transaction per commit, made by a thread of its own.

LMDB does not checksum, so every value begins with the CRC-32C of key and value. Transactions are short: a reader that lingers would keep
freed pages from being used again. The map is address space, not disk space; when it is full all the same, it is doubled.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import lmdb
from google_crc32c import extend as crc_extend
from google_crc32c import value as crc_value
from librt.strings import BytesWriter
from mypy_extensions import i64

from trilogue.core.batch import u32, write_u32
from trilogue.core.errors import Corrupt, StoreError
from trilogue.core.ports import Callback, CheckpointDone, Checkpoints
from trilogue.store.worker import Post, Task, Worker


class LmdbCheckpoints(Checkpoints):
    def __init__(self, path: str, map_bytes: i64, post: Post, worker: Worker) -> None:
        self.path: str = path
        self.map_bytes: int = map_bytes
        self.post: Post = post
        self.worker: Worker = worker
        # Resizing the map needs a moment without any transaction.
        self.lock: threading.Lock = threading.Lock()
        try:
            os.makedirs(path, 0o750, exist_ok=True)
            self.env: Any = lmdb.open(path, map_size=self.map_bytes, mode=0o640, readahead=False, max_readers=16)
            # A map that grew in an earlier life is larger than what is configured.
            self.map_bytes = max(self.map_bytes, self.env.info()["map_size"])
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"checkpoints in {path} cannot be opened: {error}") from error

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        out: list[tuple[bytes, bytes]] = []
        try:
            with self.lock, self.env.begin() as transaction, transaction.cursor() as cursor:
                found = cursor.set_range(prefix) if prefix else cursor.first()
                while found:
                    key: bytes = cursor.key()
                    if not key.startswith(prefix):
                        break
                    out.append((key, unseal(key, cursor.value())))
                    found = cursor.next()
        except lmdb.Error as error:
            raise StoreError(f"checkpoints cannot be read: {error}") from error
        return out

    def get(self, key: bytes) -> bytes | None:
        try:
            with self.lock, self.env.begin() as transaction:
                value: bytes | None = transaction.get(key)
        except lmdb.Error as error:
            raise StoreError(f"checkpoints cannot be read: {error}") from error
        return None if value is None else unseal(key, value)

    def commit(self, partition: i64, puts: list[tuple[bytes, bytes]], deletes: list[bytes], done: CheckpointDone) -> None:
        self.worker.submit(CommitTask(self, partition, puts, deletes, done))

    def erase(self, prefix: bytes) -> None:
        self.write([], self.keys(prefix))

    def keys(self, prefix: bytes) -> list[bytes]:
        """Keys alone, so that even damaged values can be erased."""
        out: list[bytes] = []
        try:
            with self.lock, self.env.begin() as transaction, transaction.cursor() as cursor:
                found = cursor.set_range(prefix) if prefix else cursor.first()
                while found:
                    key: bytes = cursor.key()
                    if not key.startswith(prefix):
                        break
                    out.append(key)
                    found = cursor.next()
        except lmdb.Error as error:
            raise StoreError(f"checkpoints cannot be read: {error}") from error
        return out

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """One synced transaction, at once."""
        sealed = [(key, seal(key, value)) for key, value in puts]
        while True:
            try:
                with self.lock, self.env.begin(write=True) as transaction:
                    for key in deletes:
                        transaction.delete(key)
                    for key, value in sealed:
                        transaction.put(key, value)
                return
            except lmdb.MapFullError:
                self.grow()
            except lmdb.Error as error:
                raise StoreError(f"checkpoint cannot be written: {error}") from error

    def grow(self) -> None:
        with self.lock:
            self.map_bytes *= 2
            try:
                self.env.set_mapsize(self.map_bytes)
            except lmdb.Error as error:
                raise StoreError(f"the checkpoint map cannot grow to {self.map_bytes} bytes: {error}") from error

    def close(self) -> None:
        self.worker.close()
        self.env.close()


class CommitTask(Task):
    def __init__(self, checkpoints: LmdbCheckpoints, partition: i64, puts: list[tuple[bytes, bytes]], deletes: list[bytes],
                 done: CheckpointDone) -> None:
        self.checkpoints: LmdbCheckpoints = checkpoints
        self.partition: i64 = partition
        self.puts: list[tuple[bytes, bytes]] = puts
        self.deletes: list[bytes] = deletes
        self.done: CheckpointDone = done

    def run(self) -> bool:
        error: Exception | None = None
        try:
            self.checkpoints.write(self.puts, self.deletes)
        except StoreError as failure:
            error = failure
        self.checkpoints.post.post(CommitAnswer(self.done, self.partition, error))
        return True


class CommitAnswer(Callback):
    def __init__(self, done: CheckpointDone, partition: i64, error: Exception | None) -> None:
        self.done: CheckpointDone = done
        self.partition: i64 = partition
        self.error: Exception | None = error

    def fire(self) -> None:
        self.done.checkpoint_done(self.partition, self.error)


def seal(key: bytes, value: bytes) -> bytes:
    w = BytesWriter()
    crc: i64 = crc_extend(crc_value(key), value)
    write_u32(w, crc)
    w.write(value)
    return w.getvalue()


def unseal(key: bytes, stored: bytes) -> bytes:
    """The key is part of the checksum, so that a value can never be taken for another key's."""
    if len(stored) < 4 or crc_extend(crc_value(key), stored[4:]) != u32(stored, 0):
        raise Corrupt(f"checkpoint entry {key.hex()} does not match its checksum")
    return stored[4:]
