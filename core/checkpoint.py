"""Checkpoints: a copy of a partition's state in LMDB, so that recovery reads only the end of the log (DESIGN 1, RULES 1 and 4).

A checkpoint is taken in slices while the partition goes on. Each *loose* item (a queue) is copied at its own moment and says up to which
offset it includes the log; the *tight* items and the head are copied last, together. Recovery replays from the offset at which the
checkpoint began, and each item ignores what it already includes.

There are two slots, written in turn; each write brings its slot up by the last two deltas. A slot is committed only when the log is
on disk up to the last moment it was copied at.
"""

from __future__ import annotations

from abc import abstractmethod
from hashlib import sha256
from typing import Any, Final

import cbor2
import structlog
from mypy_extensions import i64

from trilogue.core.errors import Corrupt
from trilogue.core.partition import Partition
from trilogue.core.ports import Callback, CheckpointDone, Checkpoints, Promise

SLICE_ITEMS: Final = 100
ITEMS_PER_TICK: Final = 5_000     # so that copying many busy queues never takes more than a small part of the time
RETRY_S: Final = 1.0
HEAD: Final = b"\x00"
HASHED: Final = b"\x01"           # begins the key of an item whose own key is too long
KEY_BYTES_MAX: Final = 400
SLOTS: Final = [b"S\x00", b"S\x01"]

logger = structlog.get_logger("core")


class Checkpointed(Partition):
    """A partition that can be copied item by item. Keys are the partition's own; they begin with a letter."""

    @abstractmethod
    def take_loose(self) -> list[bytes]:
        """Keys of loose items that changed since the last call."""

    @abstractmethod
    def take_tight(self) -> list[bytes]:
        """Keys of tight items that changed since the last call."""

    @abstractmethod
    def copy_item(self, key: bytes, extra: list[tuple[bytes, bytes]]) -> bytes | None:
        """The item as it is now; None if it is gone. `extra` takes entries that belong to no slot (index blocks)."""

    @abstractmethod
    def copy_head(self) -> dict[str, Any]:
        """What every checkpoint has: marks, open hand-offs."""

    @abstractmethod
    def take_garbage(self) -> list[bytes]:
        """Entries outside the slots that no new checkpoint names."""

    @abstractmethod
    def restore(self, head: dict[str, Any], items: list[tuple[bytes, bytes]]) -> None:
        """Become what a checkpoint says."""

    @abstractmethod
    def stored(self) -> None:
        """The last copy is committed."""

    @abstractmethod
    def dead_segments(self) -> list[int]:
        """Closed segments in which nothing is owed any more."""

    def forget_segments(self, bases: list[int]) -> None:
        """They are being deleted."""


class Slice(Callback):
    def __init__(self, checkpointer: Checkpointer) -> None:
        self.checkpointer: Checkpointer = checkpointer

    def fire(self) -> None:
        self.checkpointer.copy_slice()


class Safe(Promise):
    """The log is on disk up to the moment of the copy. (If a round failed, the partitions that it concerns have stopped.)"""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.checkpointer: Checkpointer = checkpointer

    def kept(self) -> None:
        self.checkpointer.log_is_safe()

    def broken(self, reason: str) -> None:
        self.checkpointer.log_is_safe()


class Again(Callback):
    def __init__(self, checkpointer: Checkpointer) -> None:
        self.checkpointer: Checkpointer = checkpointer

    def fire(self) -> None:
        self.checkpointer.commit()


class Checkpointer(CheckpointDone):
    def __init__(self, partition: Checkpointed, store: Checkpoints, prefix: bytes) -> None:
        self.partition: Checkpointed = partition
        self.store: Checkpoints = store
        self.prefix: bytes = prefix
        self.slot: i64 = 0                      # the one that is written next
        self.start: i64 = -1                    # offset at which the present copy began
        self.committed: i64 = -1                # the newest committed copy began here
        self.before: i64 = -1                   # and the one before it here
        self.last_keys: list[bytes] = []        # what the slot written before has and this one not yet
        self.tight_before: list[bytes] = []
        self.keys: list[bytes] = []
        self.copied: i64 = 0
        self.fresh: list[bytes] = []
        self.puts: list[tuple[bytes, bytes]] = []
        self.deletes: list[bytes] = []
        self.garbage: list[list[bytes]] = [[], []]
        self.dead: list[int] = []               # at the start of the present copy
        self.dead_before: list[int] = []        # at the start of the committed one
        self.busy: bool = False
        self.ticks: i64 = 0
        self.rest_ticks: i64 = 1                # how many calls of `begin` one copy should last

    # -------------------------------------------------------------------------------------------- taking one

    def begin(self) -> bool:
        """Start a copy, unless one is under way, the last one was too dear to be repeated so soon, or nothing is new for either slot."""
        partition = self.partition
        self.ticks += 1
        if self.ticks < self.rest_ticks:
            return False
        if self.busy or partition.stopped or (self.before == partition.next and self.committed == partition.next):
            return False
        self.busy = True
        self.ticks = 0
        self.start = partition.next
        self.dead = partition.dead_segments()
        self.fresh = partition.take_loose()
        self.keys = merged(self.last_keys, self.fresh)
        self.rest_ticks = 1 + len(self.keys) // ITEMS_PER_TICK
        self.copied = 0
        self.puts = []
        self.deletes = []
        self.copy_slice()
        return True

    def copy_slice(self) -> None:
        stop: i64 = self.copied + SLICE_ITEMS
        n: i64 = len(self.keys)
        while self.copied < stop and self.copied < n:
            self.copy(self.keys[self.copied])
            self.copied += 1
        if self.copied < n:
            self.partition.scheduler.call_soon(Slice(self))
            return
        self.copy_rest()

    def copy_rest(self) -> None:
        partition = self.partition
        tight = partition.take_tight()
        for key in merged(self.tight_before, tight):
            self.copy(key)
        head = partition.copy_head()
        head["start"] = int(self.start)
        head["applied_to"] = int(partition.next)
        self.puts.append((self.key(HEAD), cbor2.dumps(head)))
        self.garbage.append(partition.take_garbage())
        self.last_keys = self.fresh
        self.tight_before = tight
        partition.flusher.call_after(Safe(self))

    def copy(self, key: bytes) -> None:
        value = self.partition.copy_item(key, self.puts)
        if value is None:
            self.deletes.append(self.key(key))
        else:
            self.puts.append((self.key(key), value if len(key) <= KEY_BYTES_MAX else len(key).to_bytes(4, "big") + key + value))

    def key(self, key: bytes) -> bytes:
        """LMDB takes short keys only: a long one is kept with its value, and found by its hash."""
        return self.slot_prefix(self.slot) + (key if len(key) <= KEY_BYTES_MAX else HASHED + sha256(key).digest())

    def slot_prefix(self, slot: i64) -> bytes:
        return self.prefix + SLOTS[slot]

    def log_is_safe(self) -> None:
        self.deletes.extend(self.garbage.pop(0))
        self.commit()

    def commit(self) -> None:
        if not self.partition.stopped:
            self.store.commit(self.partition.id, self.puts, self.deletes, self)

    def checkpoint_done(self, partition: i64, error: Exception | None) -> None:
        if error is not None:
            # Neither slot has changed, and the log goes on without: once the disk has room again, the same copy is as good as before.
            logger.warning("checkpoint not written", partition=int(partition), reason=str(error))
            self.partition.scheduler.call_later(RETRY_S, Again(self))
            return
        self.busy = False
        self.puts = []
        self.deletes = []
        self.slot = 1 - self.slot
        self.before = self.committed
        self.committed = self.start
        self.partition.stored()
        if self.dead_before:
            self.partition.forget_segments(self.dead_before)
            self.partition.log.delete_segments(self.dead_before)
        gone = self.dead_before
        self.dead_before = [base for base in self.dead if base not in gone]
        self.dead = []

    # -------------------------------------------------------------------------------------------- recovery

    def read_head(self, slot: i64) -> dict[str, Any] | None:
        return read_head(self.store, self.slot_prefix(slot))

    def load(self) -> i64:
        """Restore the newest copy that can be read; returns the offset to replay from."""
        order: list[tuple[int, int]] = []
        for slot in range(2):
            head = self.read_head(slot)
            if head is not None:
                order.append((head["start"], slot))
        order.sort(reverse=True)
        for start, slot in order:
            if self.load_slot(slot):
                self.slot = 1 - slot
                self.committed = start
                # What the other slot has, and lacks, is not known any more: it is written anew.
                self.store.erase(self.slot_prefix(self.slot))
                self.last_keys = self.partition.take_loose()
                self.tight_before = self.partition.take_tight()
                return start
        if self.partition.log.start_offset() > 0:
            raise Corrupt(f"partition {self.partition.id} has no readable checkpoint, and its log no longer begins at 0")
        self.store.erase(self.prefix)
        return 0

    def load_slot(self, slot: i64) -> bool:
        head = self.read_head(slot)
        if head is None:
            return False
        try:
            entries = self.store.scan(self.slot_prefix(slot))
        except Corrupt:
            return False
        skip = len(self.slot_prefix(slot))
        items = [full_item(key[skip:], value) for key, value in entries if key[skip:] != HEAD]
        self.partition.applied_to = head["applied_to"]
        self.partition.restore(head, items)
        return True


def merged(a: list[bytes], b: list[bytes]) -> list[bytes]:
    if not a:
        return b
    return list(dict.fromkeys(a + b))


def full_item(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The item as its partition knows it."""
    if not key.startswith(HASHED):
        return key, value
    n = int.from_bytes(value[:4], "big")
    return value[4:4 + n], value[4 + n:]


def read_head(store: Checkpoints, slot_prefix: bytes) -> dict[str, Any] | None:
    try:
        data = store.get(slot_prefix + HEAD)
    except Corrupt:
        return None
    if data is None:
        return None
    head: dict[str, Any] = cbor2.loads(data)
    return head


def proven_offset(store: Checkpoints, prefix: bytes) -> i64:
    """Up to here the log was on disk when its newest checkpoint was committed."""
    proven: i64 = 0
    for slot in SLOTS:
        head = read_head(store, prefix + slot)
        if head is not None and head["applied_to"] > proven:
            proven = head["applied_to"]
    return proven
