"""`log verify`, `dump` and `reindex` on a directory that no broker uses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.store.helpers import Node
from tests.store.test_compaction import SETTINGS, contents, filled, put
from trilogue.core.errors import DataDirInUse, StoreError
from trilogue.store.disk import OsDisk
from trilogue.store.verify import dump, reindex, verify


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def fill(path: Path) -> Node:
    node = Node(path, SETTINGS)
    filled(node, random.Random(2), 40)
    log = node.open(2)
    put(log, [(b"k\x1b[31m", b"v"), ("ä".encode(), b"")])
    node.round()
    return node


def test_a_good_directory(tmp_path: Path) -> None:
    node = fill(tmp_path)
    records = len(contents(node.open()))
    node.close()
    before = snapshot(tmp_path)
    reports = list(verify(OsDisk(), str(tmp_path)))
    assert [report.partition for report in reports] == [1, 2]
    assert reports[0].records == records
    assert all(report.problems == [] and report.notes == [] for report in reports)
    assert " ok: offsets 0 to 2, 2 records in 1 batches" in reports[1].line()
    assert snapshot(tmp_path) == before


def test_every_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    node = fill(tmp_path)
    node.crash()
    rng = random.Random(4)
    segments = sorted((tmp_path / "logs" / f"{1:016x}").glob("*.log"))[:-1]
    for _ in range(60):
        segment = rng.choice(segments)
        good = segment.read_bytes()
        if not good:
            continue
        at = rng.randrange(len(good))
        segment.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1:])
        report, _ = list(verify(OsDisk(), str(tmp_path)))
        assert len(report.problems) == 1
        assert segment.name in report.problems[0]
        assert "damaged" in report.line()
        segment.write_bytes(good)


def test_a_torn_tail_is_a_note_and_stays(tmp_path: Path) -> None:
    node = fill(tmp_path)
    node.crash()
    segment = tmp_path / "logs" / f"{2:016x}" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes() + b"TR rubbish")
    before = snapshot(tmp_path)
    report = list(verify(OsDisk(), str(tmp_path)))[1]
    assert report.problems == []
    assert "unfinished write" in report.notes[0]
    assert snapshot(tmp_path) == before


def test_dump_is_safe_for_a_terminal(tmp_path: Path) -> None:
    fill(tmp_path).close()
    lines = list(dump(OsDisk(), str(tmp_path), 2))
    assert len(lines) == 2
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert "offset=0" in lines[0]
    assert "message" in lines[0]
    assert "routing_key='rk'" in lines[0]
    assert len(list(dump(OsDisk(), str(tmp_path)))) > 50


def test_reindex_makes_what_the_broker_made(tmp_path: Path) -> None:
    node = fill(tmp_path)
    node.close()
    closed = sorted((tmp_path / "logs" / f"{1:016x}").glob("*.log"))[:-1]
    indexes = [segment.with_suffix(".idx") for segment in closed if segment.stat().st_size]
    good = [index.read_bytes() for index in indexes]
    for index in indexes:
        index.write_bytes(b"rubbish")
    assert all("written" in line for line in reindex(OsDisk(), str(tmp_path), SETTINGS.index_interval_bytes))
    assert [index.read_bytes() for index in indexes] == good


def test_a_directory_in_use_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    node = fill(tmp_path / "data")
    for tool in (verify(OsDisk(), str(tmp_path / "data")), dump(OsDisk(), str(tmp_path / "data")), reindex(OsDisk(), str(tmp_path / "data"), 512)):
        with pytest.raises(DataDirInUse, match="process"):
            list(tool)
    node.close()
    with pytest.raises(StoreError, match="not a data directory"):
        list(verify(OsDisk(), str(tmp_path)))
