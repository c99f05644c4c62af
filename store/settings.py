"""What can be configured about the store; validated once, where the configuration is read."""

from __future__ import annotations

from dataclasses import dataclass

FSYNC = "fsync"
OS = "os"


@dataclass(frozen=True)
class StoreSettings:
    segment_bytes: int = 1 << 30
    segment_ms: int = 24 * 3_600_000            # a segment older than this is closed at the next write, so that retention can act
    index_interval_bytes: int = 65_536
    durability: str = FSYNC
    descriptors_max: int = 512
    drop_cache: bool = True                     # HOTPATH rule 10
    checkpoint_map_bytes: int = 1 << 36         # address space, not disk space; doubled when it is full

    def __post_init__(self) -> None:
        problems = []
        if not 4_096 <= self.segment_bytes <= 1 << 40:
            problems.append("segment_bytes must be between 4096 and 1 TiB")
        if self.segment_ms < 1_000:
            problems.append("segment_ms must be at least 1000")
        if not 512 <= self.index_interval_bytes <= self.segment_bytes:
            problems.append("index_interval_bytes must be between 512 and segment_bytes")
        if self.durability not in (FSYNC, OS):
            problems.append(f'durability must be "{FSYNC}" or "{OS}"')
        if self.descriptors_max < 8:
            problems.append("descriptors_max must be at least 8")
        if self.checkpoint_map_bytes < 1 << 20:
            problems.append("checkpoint_map_bytes must be at least 1 MiB")
        if problems:
            raise ValueError("; ".join(problems))
