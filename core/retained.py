"""Retained messages: the last one of each topic, found again by filter. A map partition, with a tree of topic levels over it."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from trilogue.core.decoding import Cursor
from trilogue.core.errors import InvalidArgument, LimitExceeded
from trilogue.core.flusher import Flusher
from trilogue.core.message import KEY_BYTES_MAX, Run
from trilogue.core.ports import Log, Scheduler
from trilogue.core.record import State, encode_message
from trilogue.core.states import StatePartition

SEPARATOR: Final = "/"
ONE: Final = "+"
REST: Final = "#"


class Level:
    def __init__(self) -> None:
        self.below: dict[str, Level] = {}
        self.key: bytes = b""               # of the message retained exactly here; empty: none


class Retained(StatePartition):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64, count_max: i64, bytes_max: i64) -> None:
        super().__init__(id, log, scheduler, flusher, epoch)
        self.begin_empty()
        self.roots: dict[str, Level] = {}
        self.bytes: i64 = 0
        self.sizes: dict[bytes, int] = {}
        self.count_max: i64 = count_max
        self.bytes_max: i64 = bytes_max

    def retain(self, vhost: str, topic: str, run: Run) -> None:
        """Keep the run's last message under `topic`."""
        last: i64 = len(run.spans) - 1
        one = run.part(last, last + 1)
        one.time_ms = self.scheduler.now_ms()
        if one.ttl_ms >= 0:
            one.deadline_ms = one.time_ms + one.ttl_ms
        w = BytesWriter()
        encode_message(w, one, [])
        key = state_key(vhost, topic)
        if len(key) > KEY_BYTES_MAX:
            raise InvalidArgument(f"the topic is longer than {KEY_BYTES_MAX} bytes together with its vhost")
        old = self.sizes.get(key, 0)
        if (old == 0 and len(self.values) >= self.count_max) or self.bytes + len(w) - old > self.bytes_max:
            raise LimitExceeded(f"no more than {self.count_max} messages of {self.bytes_max} bytes together are retained")
        self.append(State(key, w.getvalue()))

    def forget(self, vhost: str, topic: str) -> None:
        key = state_key(vhost, topic)
        if key in self.values:
            self.append(State(key, b""))

    def value_changed(self, key: bytes, value: bytes) -> None:
        old = self.sizes.pop(key, 0)
        self.bytes -= old
        if value:
            self.sizes[key] = len(value)
            self.bytes += len(value)
        vhost, topic = key.decode().split("\0", 1)
        level = self.roots.setdefault(vhost, Level())
        path: list[tuple[Level, str]] = []
        for word in topic.split(SEPARATOR):
            path.append((level, word))
            below = level.below.get(word)
            if below is None:
                below = Level()
                level.below[word] = below
            level = below
        level.key = key if value else b""
        while path and not level.below and not level.key:
            above, word = path.pop()
            del above.below[word]
            level = above

    def matching(self, vhost: str, topic_filter: str) -> list[tuple[str, Run]]:
        """The retained messages whose topic the filter matches, without those that have expired."""
        keys: list[bytes] = []
        root = self.roots.get(vhost)
        if root is not None:
            collect(root, topic_filter.split(SEPARATOR), keys)
        now = self.scheduler.now_ms()
        out: list[tuple[str, Run]] = []
        for key in keys:
            value = self.values[key]
            run = Cursor(value, 0, len(value)).message([])
            if run.deadline_ms == 0 or run.deadline_ms > now:
                out.append((key.decode().split("\0", 1)[1], run))
        return out


def state_key(vhost: str, topic: str) -> bytes:
    return f"{vhost}\0{topic}".encode()


def collect(root: Level, words: list[str], keys: list[bytes]) -> None:
    """The keys below `root` that a filter's words lead to. With a stack of its own: a topic may have more levels than calls may nest."""
    stack: list[tuple[Level, int, bool]] = [(root, 0, True)]
    while stack:
        level, at, top = stack.pop()
        word = words[at] if at < len(words) else ""
        if at == len(words) or word == REST:
            if level.key:
                keys.append(level.key)
            if at == len(words):
                continue
        if word in (REST, ONE):
            for name, below in level.below.items():
                if not (top and name.startswith("$")):
                    stack.append((below, at if word == REST else at + 1, False))
        else:
            found = level.below.get(word)
            if found is not None:
                stack.append((found, at + 1, False))
