"""What the queues of a shard took lately, so that one that asks for it takes no message twice.

The leader decides, and a `State` record beside the message says so: both are in one batch, so a crash keeps both or neither. What is here is
the leader's view of those states, built when it is first needed. A queue remembers as many messages, and for as long, as it was told to.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from trilogue.core.delays import DelayHome
from trilogue.core.queue import Queue
from trilogue.core.record import State

MARK: Final = b"seen:"          # of the states that are ours; then the queue's id, and a digest
DIGEST_BYTES: Final = 16
KEY_BYTES: Final = 29           # all three
SIZE: Final = 10_000            # remembered by a queue that names neither a number nor a time
SIZE_MAX: Final = 1_000_000     # by one that names only a time


class SeenHome(DelayHome):
    """What this needs of the shard, beside what queues and delays need."""

    queues: dict[int, Queue]
    states: dict[bytes, bytes]


class Seen:
    def __init__(self, home: SeenHome) -> None:
        self.home: SeenHome = home
        self.loaded: bool = False
        self.taken: dict[int, dict[bytes, int]] = {}        # queue id -> digest -> ms; oldest first
        self.count: i64 = 0                                 # ever taken: the order of those that are remembered

    def admit(self, queue: Queue, identity: bytes) -> bool:
        """False if the queue took a message of this identity before. Else it is remembered from now on."""
        if not identity:
            return True
        self.load()
        taken = self.taken.setdefault(int(queue.id), {})
        options = queue.options
        now = self.home.now_ms()
        if options.dedup_ttl_ms >= 0:
            self.drop_before(queue.id, taken, now - options.dedup_ttl_ms)
        digest = blake2b(identity, digest_size=DIGEST_BYTES).digest()
        if digest in taken:
            return False
        self.drop_over(queue.id, taken, window(queue) - 1)
        w = BytesWriter()
        write_i64_be(w, now)
        write_i64_be(w, self.count)
        self.count += 1
        taken[digest] = int(now)
        self.home.append(State(key_of(queue.id, digest), w.getvalue()))
        return True

    def forget(self, queue_id: i64) -> None:
        """The queue is about to go."""
        self.load()
        for digest in self.taken.pop(queue_id, {}):
            self.home.append(State(key_of(queue_id, digest), b""))

    def drop_before(self, queue_id: i64, taken: dict[bytes, int], time_ms: i64) -> None:
        old: list[bytes] = []
        for digest, taken_ms in taken.items():
            if taken_ms > time_ms:
                break
            old.append(digest)
        self.drop(queue_id, taken, old)

    def drop_over(self, queue_id: i64, taken: dict[bytes, int], most: i64) -> None:
        old: list[bytes] = []
        excess: i64 = len(taken) - most
        if excess > 0:
            for digest in taken:
                old.append(digest)
                if len(old) == excess:
                    break
        self.drop(queue_id, taken, old)

    def drop(self, queue_id: i64, taken: dict[bytes, int], digests: list[bytes]) -> None:
        for digest in digests:
            del taken[digest]
            self.home.append(State(key_of(queue_id, digest), b""))

    def load(self) -> None:
        """Take up what an earlier leader remembered."""
        if self.loaded:
            return
        self.loaded = True
        found: list[tuple[int, bytes]] = []
        for key, value in self.home.states.items():
            if key.startswith(MARK) and len(key) == KEY_BYTES:
                found.append((read_i64_be(value, 8), key))
        found.sort()
        for count, key in found:
            queue_id = read_i64_be(key, len(MARK))
            if queue_id in self.home.queues:
                self.taken.setdefault(int(queue_id), {})[key[KEY_BYTES - DIGEST_BYTES:]] = read_i64_be(self.home.states[key], 0)
                self.count = count + 1
            else:
                self.home.append(State(key, b""))


def key_of(queue_id: i64, digest: bytes) -> bytes:
    w = BytesWriter()
    w.write(MARK)
    write_i64_be(w, queue_id)
    w.write(digest)
    return w.getvalue()


def window(queue: Queue) -> i64:
    """How many messages the queue remembers at most."""
    options = queue.options
    if options.dedup_size > 0:
        return options.dedup_size
    return SIZE if options.dedup_ttl_ms < 0 else SIZE_MAX
