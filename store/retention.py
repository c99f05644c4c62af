"""Which closed segments a topic no longer has to keep. Pure: the caller deletes them."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.ports import SegmentInfo


def outdated(segments: list[SegmentInfo], now_ms: i64, retention_ms: i64, retention_bytes: i64) -> list[int]:
    """Base offsets, oldest first. By age: the youngest message is older than `retention_ms`. By size: what remains is still at least
    `retention_bytes`. A negative limit is none; the last segment, which is being written, always stays."""
    total: i64 = 0
    for segment in segments:
        total += segment.size
    out: list[int] = []
    for k in range(len(segments) - 1):
        segment = segments[k]
        old = retention_ms >= 0 and now_ms - segment.last_time_ms > retention_ms
        surplus = retention_bytes >= 0 and total - segment.size >= retention_bytes
        if not old and not surplus:
            break
        total -= segment.size
        out.append(int(segment.base))
    return out
