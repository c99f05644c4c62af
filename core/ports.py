"""What the core needs from the world, as abstract classes. Each names its implementation; tests and the simulator bring their own.

All methods are called on the event loop unless they say otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Timer(ABC):
    """A handle for one `call_later`; implemented by `cli/loop.py`."""

    @abstractmethod
    def cancel(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Callback(ABC):
    """Something to be called once, later. A class and not a closure, because those are dear when compiled."""

    @abstractmethod
    def fire(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Promise(ABC):
    """Something that waits for the disk. Exactly one of its two ends is called, once."""

    @abstractmethod
    def kept(self) -> None:
        """Everything that was done before is on disk."""

    @abstractmethod
    def broken(self, reason: str) -> None:
        """Part of it is not, or nobody knows."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(ABC):
    """The loop and the clocks; implemented by `cli/loop.py` on asyncio."""

    @abstractmethod
    def call_soon(self, callback: Callback) -> None: ...

    @abstractmethod
    def call_later(self, delay_s: float, callback: Callback) -> Timer: ...

    @abstractmethod
    def now_ms(self) -> i64:
        """Broker time: milliseconds since 1970 that never jump and never go back (RULES 9)."""


class SegmentInfo:
    """One segment as the core sees it: offsets [base, end) in `size` bytes, its last append time."""

    def __init__(self, base: i64, end: i64, size: i64, last_time_ms: i64) -> None:
        self.base: i64 = base
        self.end: i64 = end
        self.size: i64 = size
        self.last_time_ms: i64 = last_time_ms


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchReader(ABC):
    """Receives what `Log.fetch` read. Called on the loop, exactly once."""

    @abstractmethod
    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        """Whole verified batches in offset order (empty at the end of what is written); `error` if the log could not be read."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Log(ABC):
    """One partition's log on disk; implemented by `store/log.py`. Offsets never repeat."""

    @abstractmethod
    def start_offset(self) -> i64:
        """The lowest offset that may still be there."""

    @abstractmethod
    def end_offset(self) -> i64:
        """The offset that the next staged batch must begin with."""

    @abstractmethod
    def written_offset(self) -> i64:
        """The first offset that is not yet in the file, and so cannot be fetched."""

    @abstractmethod
    def synced_offset(self) -> i64:
        """The first offset that is not known to be on disk; equal to `written_offset` where no sync is due."""

    @abstractmethod
    def segment_base(self) -> i64:
        """The base offset of the segment that the next staged batch goes to."""

    @abstractmethod
    def stage(self, buffers: list[bytes], end_offset: i64, time_ms: i64) -> None:
        """Take sealed batches (any number, in as many buffers as is convenient) for the journal's next round."""

    @abstractmethod
    def fetch(self, offset: i64, bytes_max: i64, reader: BatchReader) -> None:
        """Read whole batches from the one that holds `offset` on, in the reading thread; at least one if there is one."""

    @abstractmethod
    def read(self, offset: i64, bytes_max: i64) -> list[bytes]:
        """The same, at once and blocking: for recovery and tools, never from the loop while it serves clients."""

    @abstractmethod
    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first; the last one is being written."""

    @abstractmethod
    def delete_segments(self, bases: list[int]) -> None:
        """Remove closed segments, wherever they lie; the caller knows that nothing needs them."""

    @abstractmethod
    def offset_for_time(self, time_ms: i64) -> i64:
        """The offset of the first batch whose append time is at or after `time_ms`; the end offset if there is none."""


class RoundResult:
    """How a round ended: the logs whose write or sync failed, each with the reason. Everything else of the round is on disk."""

    def __init__(self, failed: list[tuple[int, str]]) -> None:
        self.failed: list[tuple[int, str]] = failed      # (partition id, reason)


@mypyc_attr(allow_interpreted_subclasses=True)
class RoundDone(ABC):
    """Told by the journal, on the loop, how its rounds go; implemented by `core/broker.py`."""

    @abstractmethod
    def round_done(self, result: RoundResult) -> None: ...

    @abstractmethod
    def round_stalled(self, reason: str) -> None:
        """The disk is full: the round is being retried, and publishers must be held until `round_done`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(ABC):
    """All logs of a node and the one thread that writes and syncs them; implemented by `store/journal.py`."""

    @abstractmethod
    def expect(self, partition: i64, offset: i64) -> None:
        """A checkpoint proves that the log was on disk up to `offset`: opening it will insist."""

    @abstractmethod
    def open(self, partition: i64, synced: bool) -> Log:
        """The log of that partition, created if it is new. `synced` false: written counts as synced."""

    @abstractmethod
    def partitions(self) -> list[int]:
        """All that have a log, open or not."""

    @abstractmethod
    def drop(self, partition: i64) -> None:
        """Close and delete a partition's log."""

    @abstractmethod
    def dirty(self) -> bool:
        """Is anything staged that no round has taken?"""

    @abstractmethod
    def begin_round(self) -> None:
        """Write and sync everything staged so far; one round at a time. Answers through `RoundDone`."""

    @abstractmethod
    def free_bytes(self) -> i64:
        """Free space on the data disk."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CheckpointDone(ABC):
    @abstractmethod
    def checkpoint_done(self, partition: i64, error: Exception | None) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Checkpoints(ABC):
    """A small transactional map on disk; implemented with LMDB by `store/checkpoints.py`. Every value is checksummed."""

    @abstractmethod
    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All entries below a prefix, in key order; blocking, for recovery. `Corrupt` if a value's checksum is wrong."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def commit(self, partition: i64, puts: list[tuple[bytes, bytes]], deletes: list[bytes], done: CheckpointDone) -> None:
        """One synced transaction, made by the checkpoint thread; answered on the loop."""

    @abstractmethod
    def erase(self, prefix: bytes) -> None:
        """Remove everything below a prefix; blocking."""


TO_QUEUE: Final = 0
TO_TOPIC: Final = 1
TO_LIVE: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Router(ABC):
    """Which queues, topics and live subscriptions a message goes to; implemented by `routing/router.py`.

    A destination is one integer, `id << 2 | kind`, with kind `TO_QUEUE`, `TO_TOPIC` or `TO_LIVE`. The router is a view of the catalog: it is
    told every change after the catalog has applied it, and checks nothing that the catalog has checked. `version` rises with
    every change that can alter a result, so that results can be cached by (vhost, exchange, routing key).
    """

    version: i64

    @abstractmethod
    def add_vhost(self, vhost: str) -> None: ...

    @abstractmethod
    def remove_vhost(self, vhost: str) -> None: ...

    @abstractmethod
    def add_exchange(self, vhost: str, name: str, kind: str, arguments: dict[str, object]) -> None:
        """`kind` is direct, fanout, topic, headers, x-consistent-hash, x-random or x-local-random. `alternate-exchange` is in the arguments."""

    @abstractmethod
    def set_alternate(self, vhost: str, name: str, alternate: str) -> None:
        """A policy's alternate exchange; an argument's wins. Empty: none."""

    @abstractmethod
    def remove_exchange(self, vhost: str, name: str) -> None:
        """Also removes every binding from and to it."""

    @abstractmethod
    def add_destination(self, vhost: str, name: str, destination: int) -> None:
        """A queue or topic now exists: the default exchange delivers to it by its name."""

    @abstractmethod
    def remove_destination(self, vhost: str, name: str, destination: int) -> None:
        """Also removes every binding to it."""

    @abstractmethod
    def bind(self, vhost: str, source: str, destination: int, routing_key: str, arguments: dict[str, object]) -> None: ...

    @abstractmethod
    def unbind(self, vhost: str, source: str, destination: int, routing_key: str, arguments: dict[str, object]) -> None: ...

    @abstractmethod
    def bind_exchange(self, vhost: str, source: str, target: str, routing_key: str, arguments: dict[str, object]) -> None: ...

    @abstractmethod
    def unbind_exchange(self, vhost: str, source: str, target: str, routing_key: str, arguments: dict[str, object]) -> None: ...

    @abstractmethod
    def subscribe(self, vhost: str, topic_filter: str, destination: int) -> None:
        """A slash-separated filter (`+`, `#`) on original topic strings; wildcards at the first level never match a leading `$`."""

    @abstractmethod
    def unsubscribe(self, vhost: str, topic_filter: str, destination: int) -> None: ...

    @abstractmethod
    def reads_headers(self, vhost: str, exchange: str) -> bool:
        """Does the result for this exchange depend on more than the routing key, or on chance? Then it cannot be cached."""

    @abstractmethod
    def route(self, vhost: str, exchange: str, routing_key: bytes, headers: dict[str, object]) -> list[int]:
        """All destinations, each once. `NotFound` if the exchange does not exist."""

    @abstractmethod
    def route_topic(self, vhost: str, topic: bytes) -> list[int]:
        """The destinations of `subscribe` for an original, slash-separated topic string."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Lens(ABC):
    """Looks into spans, whoever encoded them; implemented by `routing/lens.py`."""

    @abstractmethod
    def headers(self, origin: i64, span: bytes) -> dict[str, object]:
        """The message's headers, for exchanges that route by them."""

    def is_empty(self, origin: i64, span: bytes) -> bool:
        """Has the message no body? In a compacted topic such a message deletes its key."""
        return False

    def keys(self, origin: i64, span: bytes) -> list[bytes]:
        """Further routing keys that the message was published with, beside its own."""
        return []

    def identity(self, origin: i64, span: bytes, header: str) -> bytes:
        """What a message shares with its duplicates: the value of that header if it is named and there, else the message's id. Empty: nothing."""
        return b""
