"""Who may use a data directory, and what it remembers between lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.store.helpers import ROOMY, Node, append
from trilogue.core.errors import Corrupt, DataDirInUse, FormatTooNew, StoreError
from trilogue.store.datadir import CleanMark, DataDir
from trilogue.store.disk import OsDisk


def test_the_epoch_rises_at_every_start(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        datadir = DataDir(OsDisk(), str(tmp_path))
        assert datadir.epoch == expected
        datadir.close({})


def test_a_directory_in_use_is_refused_and_names_the_process(tmp_path: Path) -> None:
    datadir = DataDir(OsDisk(), str(tmp_path))
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()}"):
        DataDir(OsDisk(), str(tmp_path))
    datadir.close({})
    DataDir(OsDisk(), str(tmp_path)).close({})


def test_a_newer_format_is_refused_in_words(tmp_path: Path) -> None:
    DataDir(OsDisk(), str(tmp_path)).close({})
    (tmp_path / "format").write_text("trilogue data format 2\n")
    for _ in range(2):
        with pytest.raises(FormatTooNew, match="newer trilogue"):
            DataDir(OsDisk(), str(tmp_path))


@pytest.mark.parametrize("name", ["format", "epoch"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    DataDir(OsDisk(), str(tmp_path)).close({})
    (tmp_path / name).write_text("rubbish")
    with pytest.raises(Corrupt, match=name):
        DataDir(OsDisk(), str(tmp_path))


def test_logs_without_a_format_are_refused(tmp_path: Path) -> None:
    DataDir(OsDisk(), str(tmp_path)).close({})
    (tmp_path / "format").unlink()
    with pytest.raises(Corrupt, match="no format file"):
        DataDir(OsDisk(), str(tmp_path))


def test_a_path_that_is_no_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be used"):
        DataDir(OsDisk(), str(tmp_path / "file" / "data"))


def test_the_clean_mark_is_good_for_one_start(tmp_path: Path) -> None:
    datadir = DataDir(OsDisk(), str(tmp_path))
    datadir.close({7: CleanMark(100, 50, 4_000), 9: CleanMark(1, 0, 184)})
    datadir = DataDir(OsDisk(), str(tmp_path))
    mark = datadir.mark_of(7)
    assert mark is not None
    assert (mark.end, mark.base, mark.size) == (100, 50, 4_000)
    assert datadir.mark_of(8) is None
    assert not (tmp_path / "clean").exists()
    datadir.close({})


def test_a_damaged_clean_mark_is_no_mark(tmp_path: Path) -> None:
    datadir = DataDir(OsDisk(), str(tmp_path))
    datadir.close({7: CleanMark(100, 50, 4_000)})
    data = bytearray((tmp_path / "clean").read_bytes())
    data[3] ^= 1
    (tmp_path / "clean").write_bytes(data)
    assert DataDir(OsDisk(), str(tmp_path)).mark_of(7) is None


def test_folders_are_named_by_id_and_leftovers_of_dropped_logs_go(tmp_path: Path) -> None:
    node = Node(tmp_path, ROOMY)
    append(node.open(0xABC))
    node.round()
    assert (tmp_path / "logs" / "0000000000000abc").is_dir()
    node.crash()
    (tmp_path / "logs" / "0000000000000abc").rename(tmp_path / "logs" / "0000000000000abc.gone")
    node = Node(tmp_path, ROOMY)
    assert list((tmp_path / "logs").iterdir()) == []
    assert node.journal.partitions() == []
