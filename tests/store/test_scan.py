"""The walk over batches finds them whatever the size of its reads, and stops where they stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.helpers import batch
from trilogue.core.errors import Corrupt
from trilogue.store.disk import OsDisk, write_all
from trilogue.store.scan import Scanner


@pytest.mark.parametrize("chunk_bytes", [1, 84, 100, 1_000, 1 << 20])
def test_every_read_size_finds_the_same(tmp_path: Path, chunk_bytes: int) -> None:
    disk = OsDisk()
    fd = disk.open(str(tmp_path / "x"), True)
    data = [batch(k, b"p" * (k * 37)) for k in range(20)]
    size = write_all(disk, fd, data, 0)
    scanner = Scanner(disk, fd, "x", 0, size, chunk_bytes)
    found = []
    while scanner.next():
        scanner.verify()
        found.append(scanner.batch())
    assert found == data
    assert not scanner.next()
    hops = Scanner(disk, fd, "x", 0, size - 1, chunk_bytes)
    with pytest.raises(Corrupt, match=f"x at byte {size - len(data[-1])}: batch cut short"):
        while hops.next():
            pass
    disk.close(fd)
