"""The log of a partition that recovery refused. Nothing can be read from it or added to it; it is there so that everything else can be."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.errors import Unavailable
from trilogue.core.ports import BatchReader, Log, SegmentInfo


class RefusedLog(Log):
    def __init__(self, reason: str) -> None:
        self.reason: str = reason

    def start_offset(self) -> i64:
        return 0

    def end_offset(self) -> i64:
        return 0

    def written_offset(self) -> i64:
        return 0

    def synced_offset(self) -> i64:
        return 0

    def segment_base(self) -> i64:
        return 0

    def stage(self, buffers: list[bytes], end_offset: i64, time_ms: i64) -> None:
        raise Unavailable(self.reason)

    def fetch(self, offset: i64, bytes_max: i64, reader: BatchReader) -> None:
        reader.batches([], offset, Unavailable(self.reason))

    def read(self, offset: i64, bytes_max: i64) -> list[bytes]:
        raise Unavailable(self.reason)

    def segments(self) -> list[SegmentInfo]:
        return []

    def delete_segments(self, bases: list[int]) -> None:
        pass

    def offset_for_time(self, time_ms: i64) -> i64:
        return 0
