from __future__ import annotations

import pathlib
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from librt.strings import BytesWriter

from trilogue import __main__ as command
from trilogue import __version__
from trilogue.config.model import Config
from trilogue.core.batch import seal
from trilogue.core.errors import DataDirInUse
from trilogue.core.ports import RoundDone, RoundResult
from trilogue.core.record import Metadata, write_record
from trilogue.store.datadir import DataDir
from trilogue.store.disk import OsDisk
from trilogue.store.journal import DiskJournal
from trilogue.store.settings import StoreSettings
from trilogue.store.worker import DirectPost, InlineWorker

BAD = "[storage]\nshards = 0\nshardz = 4\n"


def run(*arguments: str, **environ: str) -> Any:
    return CliRunner().invoke(command.main, arguments, env={"TRILOGUE_CONFIG": None, **environ})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, pathlib.Path | None]]:
    """Takes the broker's place, and notes what it was called with."""
    calls: list[tuple[Config, pathlib.Path | None]] = []

    def record(config: Config, ready_file: pathlib.Path | None, reload: Callable[[], Config]) -> None:
        assert reload() == config
        calls.append((config, ready_file))

    stand_in(monkeypatch, "trilogue.serve", run=record)
    return calls


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Callable[..., Any]) -> None:
    module = types.ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


def test_version() -> None:
    assert run("--version").output == f"trilogue {__version__}\n"


def test_check(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("")
    result = run("config", "check", str(file))
    assert (result.exit_code, result.output) == (0, f"{file}: correct\n")
    file.write_text(BAD)
    result = run("config", "check", str(file))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{file}:2:10: storage.shards: 0 is out of range (1 to 256)",
        f"{file}:3:1: storage.shardz: is not an option of storage (did you mean shards?)",
        "trilogue: the configuration has 2 mistakes",
    ]


def test_show(tmp_path: pathlib.Path) -> None:
    result = run("config", "show", "--origin", "--set", "node.id=n", TRILOGUE_NODE__RACK="r")
    assert result.exit_code == 0
    assert 'node.id = "n"  # --set node.id\n' in result.output
    assert 'node.rack = "r"  # environment TRILOGUE_NODE__RACK\n' in result.output
    assert "# default" not in run("config", "show").output


def test_the_file_can_come_from_the_environment(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.toml").write_text("[node]\nid = 'here'\n")
    assert 'node.id = "here"' in run("config", "show", TRILOGUE_CONFIG=str(tmp_path / "t.toml")).output


def test_serve_is_given_a_configuration(tmp_path: pathlib.Path, serve: list[tuple[Config, pathlib.Path | None]]) -> None:
    result = run("serve", "--data-dir", str(tmp_path), "--set", "storage.durability=os", "--ready-file", str(tmp_path / "ready"))
    assert result.exit_code == 0, result.output
    (config, ready_file), = serve
    assert config.node.data_dir == str(tmp_path)
    assert config.storage.durability == "os"
    assert ready_file == tmp_path / "ready"


def test_serve_refuses_a_bad_configuration(serve: list[tuple[Config, pathlib.Path | None]]) -> None:
    result = run("serve", "--set", "storage.shards=0")
    assert result.exit_code == 1
    assert "--set storage.shards: storage.shards: 0 is out of range" in result.stderr
    assert serve == []


@pytest.mark.parametrize(("error", "words"), [
    (DataDirInUse("data is used by process 7"), "trilogue: data is used by process 7\n"),
    (PermissionError(13, "Permission denied", "data"), "trilogue: data: Permission denied\n"),
    (OSError(98, "address 127.0.0.1:5672 is taken"), "trilogue: address 127.0.0.1:5672 is taken\n"),
])
def test_what_a_user_can_mend_is_said_in_words(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def fail(*arguments: object) -> None:
        raise error

    stand_in(monkeypatch, "trilogue.serve", run=fail)
    result = run("serve")
    assert (result.exit_code, result.stderr) == (1, words)


@pytest.fixture
def data_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    """The data of a stopped broker: partition 26 with two batches, the second written when the first was on disk."""
    disk = OsDisk()
    datadir = DataDir(disk, str(tmp_path / "data"))
    journal = DiskJournal(disk, datadir, StoreSettings(), DirectPost(), InlineWorker(), InlineWorker(), InlineWorker())
    journal.attach(Rounds())
    writer = BytesWriter()
    write_record(writer, 0, 0, Metadata(b"change"))
    record = writer.getvalue()
    log = journal.open(26, True)
    for offset in (0, 1):
        log.stage([seal(record, offset, offset, 1, offset, 1_000, 1), record], offset + 1, 1_000)
        journal.begin_round()
    journal.close()
    return tmp_path / "data"


class Rounds(RoundDone):
    def round_done(self, result: RoundResult) -> None:
        assert result.failed == []

    def round_stalled(self, reason: str) -> None:
        raise AssertionError(reason)


def test_log_commands(data_dir: pathlib.Path) -> None:
    result = run("log", "verify", str(data_dir))
    assert result.exit_code == 0
    assert result.output.startswith("000000000000001a ok: offsets 0 to 2, 2 records")
    assert "offset=0" in run("log", "dump", str(data_dir)).output
    assert "offset=0" in run("log", "dump", "--partition", "000000000000001a", str(data_dir)).output
    assert run("log", "dump", "--partition", "1b", str(data_dir)).output == ""
    assert run("log", "reindex", str(data_dir)).exit_code == 0
    assert run("log", "verify", str(data_dir)).exit_code == 0


def test_damage_is_reported(data_dir: pathlib.Path) -> None:
    segment, = data_dir.rglob("*.log")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2 - 1] ^= 1
    segment.write_bytes(raw)
    result = run("log", "verify", str(data_dir))
    assert result.output.startswith("000000000000001a damaged")
    assert (result.exit_code, result.stderr) == (1, "trilogue: 1 partition is damaged\n")


def test_what_is_no_data_directory_is_refused(tmp_path: pathlib.Path) -> None:
    for name in ("verify", "dump", "reindex"):
        result = run("log", name, str(tmp_path))
        assert result.exit_code == 1
        assert "is not a data directory" in result.stderr
    assert run("log", "dump", "--partition", "zz", str(tmp_path)).exit_code == 2


def test_usage_errors_have_their_own_code() -> None:
    assert run("serve", "--nonsense").exit_code == 2
    assert run("confg").exit_code == 2


def test_as_a_module_and_without_colour() -> None:
    done = subprocess.run([sys.executable, "-m", "trilogue", "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"trilogue {__version__}\n"
    for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        result = CliRunner().invoke(command.main, ["config", "check", "missing.toml"], env=environ, color=True)
        assert ("\x1b[" in result.stderr) is coloured


def test_shell_completion() -> None:
    result = run(_TRILOGUE_COMPLETE="bash_source")
    assert "complete" in result.output
