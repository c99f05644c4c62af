"""The metadata partition: the catalog, and the log of everything that ever changed it."""

from __future__ import annotations

from typing import Any

from mypy_extensions import i64

from trilogue.core.catalog import Catalog
from trilogue.core.checkpoint import Checkpointed
from trilogue.core.flusher import Flusher
from trilogue.core.ports import Log, Scheduler
from trilogue.core.record import Metadata, Record

ITEM = b"C"


class MetadataPartition(Checkpointed):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64, catalog: Catalog) -> None:
        super().__init__(id, log, scheduler, flusher, epoch)
        self.catalog: Catalog = catalog
        self.values: dict[bytes, bytes | None] = {}      # items that changed since the last copy, as they were then
        self.restored: list[bytes] = []     # keys of what a checkpoint held: the other slot must get all of it

    def change(self, change: bytes | None) -> bool:
        """Log and apply what a `plan_*` of the catalog returned; false if there was nothing to do."""
        if change is None:
            return False
        self.append(Metadata(change))
        return True

    def apply(self, record: Record, segment: i64) -> None:
        if isinstance(record, Metadata):
            self.catalog.apply(record.change)

    # -------------------------------------------------------------------------------------------- checkpoint

    def take_loose(self) -> list[bytes]:
        return []

    def take_tight(self) -> list[bytes]:
        """Entities refer to each other, so all of them are copied at one moment."""
        keys = self.restored
        self.restored = []
        for key, value in self.catalog.dirty_items():
            self.values[key] = value
            keys.append(ITEM + key)
        return keys

    def copy_item(self, key: bytes, extra: list[tuple[bytes, bytes]]) -> bytes | None:
        return self.values.get(key[1:])

    def copy_head(self) -> dict[str, Any]:
        return {}

    def take_garbage(self) -> list[bytes]:
        return []

    def restore(self, head: dict[str, Any], items: list[tuple[bytes, bytes]]) -> None:
        plain = [(key[1:], value) for key, value in items]
        self.catalog.load(plain)
        for key, value in plain:
            self.values[key] = value
            self.restored.append(ITEM + key)

    def stored(self) -> None:
        pass

    def dead_segments(self) -> list[int]:
        return [info.base for info in self.log.segments() if info.end <= self.log.segment_base()]
