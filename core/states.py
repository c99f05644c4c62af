"""A partition that is a map: the last `State` record of a key is its value. Retained messages and other small durable facts live in such."""

from __future__ import annotations

from typing import Any

from mypy_extensions import i64

from trilogue.core.checkpoint import Checkpointed
from trilogue.core.record import Record, State

ITEM = b"T"


class StatePartition(Checkpointed):
    """All values are in memory and in each checkpoint, so a closed segment below the older one is never needed again."""

    values: dict[bytes, bytes]
    changed: set[bytes]

    def begin_empty(self) -> None:
        self.values = {}
        self.changed = set()

    def apply(self, record: Record, segment: i64) -> None:
        if isinstance(record, State):
            self.changed.add(record.key)
            if record.value:
                self.values[record.key] = record.value
            else:
                self.values.pop(record.key, None)
            self.value_changed(record.key, record.value)

    def value_changed(self, key: bytes, value: bytes) -> None:
        """For those who keep an index."""

    def take_loose(self) -> list[bytes]:
        keys = [ITEM + key for key in self.changed]
        self.changed = set()
        return keys

    def take_tight(self) -> list[bytes]:
        return []

    def copy_item(self, key: bytes, extra: list[tuple[bytes, bytes]]) -> bytes | None:
        return self.values.get(key[1:])

    def copy_head(self) -> dict[str, Any]:
        return {}

    def take_garbage(self) -> list[bytes]:
        return []

    def restore(self, head: dict[str, Any], items: list[tuple[bytes, bytes]]) -> None:
        for key, value in items:
            self.values[key[1:]] = value
            self.changed.add(key[1:])
            self.value_changed(key[1:], value)

    def stored(self) -> None:
        pass

    def dead_segments(self) -> list[int]:
        return [info.base for info in self.log.segments() if info.end <= self.log.segment_base()]
