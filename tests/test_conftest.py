"""The refusals of conftest.py: a compiled module beside a changed source, another build than was meant, and skipped tests under CI."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("core/a.py", "core/a.cpython-311-x86_64-linux-gnu.so", "store/b.py", "store/b.cpython-311-x86_64-linux-gnu.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "build").mkdir()
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("core/a.py", "store/b.py")}
    (tmp_path / "build" / "compiled.json").write_text(json.dumps(digests))
    return tmp_path


def stale(root: pathlib.Path) -> list[str]:
    spec = importlib.util.spec_from_file_location("checked_conftest", ROOT / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.stale_modules(root)
    return found


def test_a_fresh_build_is_fine(tree: pathlib.Path) -> None:
    assert stale(tree) == []


def test_a_plain_build_is_fine(tree: pathlib.Path) -> None:
    for path in tree.rglob("*.so"):
        path.unlink()
    (tree / "core/a.py").write_text("changed")
    assert stale(tree) == []


def test_a_changed_source_is_found(tree: pathlib.Path) -> None:
    (tree / "core/a.py").write_text("changed")
    assert stale(tree) == ["core/a.py"]


def test_a_removed_source_is_found(tree: pathlib.Path) -> None:
    (tree / "store/b.py").unlink()
    assert stale(tree) == ["store/b.py"]


def test_a_build_that_nobody_recorded_is_not_trusted(tree: pathlib.Path) -> None:
    (tree / "build" / "compiled.json").unlink()
    assert stale(tree) == ["core/a.py", "store/b.py"]


def test_a_lost_module_is_found(tree: pathlib.Path) -> None:
    (tree / "core/a.cpython-311-x86_64-linux-gnu.so").unlink()
    (tree / "core/a.py").write_text("changed")
    assert stale(tree) == ["core/a.py"]


def pytest_run(folder: pathlib.Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A run of its own, with our conftest.py and one skipped test."""
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_one.py").write_text("import pytest\n\ndef test_one():\n    pytest.skip('no time')\n\ndef test_two():\n    pass\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "TRILOGUE_FLAVOUR")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, cwd=folder, env={**clean, **environ}, capture_output=True, text=True, timeout=60, check=False)


def test_a_skipped_test_fails_where_nothing_may_be_missing(tmp_path: pathlib.Path) -> None:
    assert pytest_run(tmp_path).returncode == pytest.ExitCode.OK
    strict = pytest_run(tmp_path, CI="true")
    assert strict.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 tests were skipped" in strict.stdout


def test_another_build_than_was_meant_is_refused(tmp_path: pathlib.Path) -> None:
    found = importlib.util.find_spec("trilogue.core.batch")
    assert found is not None
    assert found.origin is not None
    this, other = ("compiled", "plain") if found.origin.endswith(".so") else ("plain", "compiled")
    assert pytest_run(tmp_path, TRILOGUE_FLAVOUR=this).returncode == pytest.ExitCode.OK
    refused = pytest_run(tmp_path, TRILOGUE_FLAVOUR=other)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"to test the {other} build" in refused.stderr
