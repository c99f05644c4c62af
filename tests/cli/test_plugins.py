from __future__ import annotations

import importlib.metadata

import pytest

from trilogue.frontends.http.listener import HttpFrontend
from trilogue.plugins import GROUP, PluginError, frontends

LINE = "tests.frontends.line_frontend:LineFrontend"


def announce(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    entries = importlib.metadata.EntryPoints(importlib.metadata.EntryPoint(name, value, GROUP) for name, value in values.items())
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries.select(group=group))


def test_installed_packages_announce_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert frontends([], [])["http"] is HttpFrontend
    announce(monkeypatch, line=LINE)
    found = frontends(["line"], [])
    assert [made.__name__ for made in found.values()] == ["LineFrontend"]


def test_the_configuration_adds_and_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, line="trilogue.frontends.http.listener:HttpFrontend")
    assert frontends(["line"], [f"line={LINE}"])["line"].__name__ == "LineFrontend"


@pytest.mark.parametrize(("path", "reason"), [
    ("no_such_module:X", "No module named 'no_such_module'"),
    ("json:nothing", "has no attribute 'nothing'"),
    ("json:JSONDecoder", "is not a Frontend"),
])
def test_one_that_cannot_be_loaded_matters_only_if_it_is_wanted(monkeypatch: pytest.MonkeyPatch, path: str, reason: str) -> None:
    announce(monkeypatch, bad=path)
    assert frontends(["other"], []) == {}
    with pytest.raises(PluginError, match=reason):
        frontends(["bad"], [])
