"""Three refusals that hold for every test: no run against a stale build, none against another build than the one that was meant
(TRILOGUE_FLAVOUR, compiled or plain), and, where CI=true, none that skipped something."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent
REBUILD = "make build"


def stale_modules(root: pathlib.Path) -> list[str]:
    """Compiled modules that were made from other sources than those beside them; they would be imported all the same."""
    compiled = sorted(path for folder in ("core", "routing", "store", "frontends") for path in (root / folder).rglob("*.so"))
    if not compiled:
        return []
    record = root / "build" / "compiled.json"
    digests = json.loads(record.read_text()) if record.exists() else {}
    sources = {f"{path.parent.relative_to(root)}/{path.name.split('.')[0]}.py" for path in compiled}
    return sorted(name for name in sources | digests.keys() if digests.get(name) != digest(root / name))


def digest(source: pathlib.Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest() if source.exists() else "gone"


def pytest_configure(config: pytest.Config) -> None:
    stale = stale_modules(ROOT)
    if stale:
        raise pytest.UsageError(f"the compiled build is older than {', '.join(stale)}; rebuild it with: {REBUILD}")
    meant = os.environ.get("TRILOGUE_FLAVOUR")
    found = importlib.util.find_spec("trilogue.core.batch")
    if meant and (found is None or found.origin is None or found.origin.endswith(".so") != (meant == "compiled")):
        raise pytest.UsageError(f"this was to test the {meant} build, but {found and found.origin} would be imported; rebuild it with: {REBUILD}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line(f"{len(reporter.stats['skipped'])} tests were skipped, which CI=true does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
