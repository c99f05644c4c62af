"""Looks into spans, whoever encoded them: one lens per origin, asked only where routing or compaction depends on what is inside.

Spans are a peer's bytes. One that cannot be read has no headers; it is never an error, since the message was accepted long ago.
"""

from __future__ import annotations

import cbor2
from mypy_extensions import i64

from trilogue.core.batch import u32
from trilogue.core.message import ORIGIN_NATIVE
from trilogue.core.ports import Lens


class NativeLens(Lens):
    """A span of our own encoding: u32 length of a CBOR map (or 0), the map, the body."""

    def headers(self, origin: i64, span: bytes) -> dict[str, object]:
        end = self.fields_end(span)
        if end <= 4:
            return {}
        try:
            fields = cbor2.loads(span[4:end])
        except (cbor2.CBORDecodeError, RecursionError, OverflowError):
            return {}
        found = fields.get("headers") if isinstance(fields, dict) else None
        if not isinstance(found, dict):
            return {}
        return {name: value for name, value in found.items() if isinstance(name, str)}

    def is_empty(self, origin: i64, span: bytes) -> bool:
        return self.fields_end(span) == len(span)

    def fields_end(self, span: bytes) -> i64:
        """Where the body begins; 0 if the span is not one of ours."""
        if len(span) < 4:
            return 0
        end: i64 = 4 + u32(span, 0)
        return end if end <= len(span) else 0


class Lenses(Lens):
    """The lens of every origin. Frontends bring theirs (`Frontend.lenses`); without one a message has no headers."""

    def __init__(self) -> None:
        self.by_origin: dict[int, Lens] = {ORIGIN_NATIVE: NativeLens()}

    def add(self, origin: i64, lens: Lens) -> None:
        self.by_origin[origin] = lens

    def headers(self, origin: i64, span: bytes) -> dict[str, object]:
        lens = self.by_origin.get(origin)
        return {} if lens is None else lens.headers(origin, span)

    def is_empty(self, origin: i64, span: bytes) -> bool:
        lens = self.by_origin.get(origin)
        return False if lens is None else lens.is_empty(origin, span)

    def keys(self, origin: i64, span: bytes) -> list[bytes]:
        lens = self.by_origin.get(origin)
        return [] if lens is None else lens.keys(origin, span)

    def identity(self, origin: i64, span: bytes, header: str) -> bytes:
        lens = self.by_origin.get(origin)
        return b"" if lens is None else lens.identity(origin, span, header)
