"""The files in conf/ are right, and the annotated one is what the schema says."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

from trilogue.config.definitions import Vhost
from trilogue.config.load import load
from trilogue.config.model import Config, Listener, Tls
from trilogue.config.option import BYTES, element, is_table, options_of
from trilogue.config.show import template

CONF = pathlib.Path(__file__).parents[3] / "conf"
FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.toml"))


def test_these_are_the_files() -> None:
    assert FILES == ["cluster/node1.toml", "cluster/node2.toml", "cluster/node3.toml", "secure.toml", "single.toml", "trilogue.toml"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_correct(name: str, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "t.toml"
    shutil.copy(CONF / name, copy)
    (tmp_path / "tls").mkdir()
    for file in ("server.crt", "server.key", "ca.crt"):
        (tmp_path / "tls" / file).touch()
    assert load(copy).config.listeners


def test_the_annotated_file_is_made_from_the_schema() -> None:
    assert (CONF / "trilogue.toml").read_text() == template(), "make it anew with: trilogue config example > conf/trilogue.toml"


def test_the_annotated_file_names_every_option_with_its_unit() -> None:
    text = (CONF / "trilogue.toml").read_text()
    shapes: list[type] = [Config, Listener, Tls]
    seen = []
    while shapes:
        for option in options_of(shapes.pop()):
            inner = element(option.type) or option.type
            if is_table(inner):
                shapes.append(inner)
                continue
            lines = re.findall(rf"^## (.*)\n(?:# )?{option.name} = ", text, re.MULTILINE)
            assert any(option.rule.unit in line for line in lines) or option.name in ("bind", "tls"), option.name
            seen.append(option.name)
    assert "segment_bytes" in seen
    assert "routing_key" in seen


def test_secure_is_secure(tmp_path: pathlib.Path) -> None:
    test_every_file_is_correct("secure.toml", tmp_path)
    config = load(tmp_path / "t.toml").config
    assert all(listener.tls for listener in config.listeners.values())
    assert not config.auth.guest
    assert config.auth.anonymous == "never"
    assert all(user.password_hash and not user.password for user in config.users)


def test_the_cluster_is_one(tmp_path: pathlib.Path) -> None:
    nodes = [load(CONF / "cluster" / f"node{n}.toml").config for n in (1, 2, 3)]
    assert len({node.node.id for node in nodes}) == 3
    assert len({node.coordination for node in nodes}) == 1
    binds = [str(listener.bind) for node in nodes for listener in node.listeners.values()]
    assert len(set(binds)) == len(binds) == 18


def test_every_size_and_time_says_its_unit_in_its_name() -> None:
    shapes: list[type] = [Config, Listener, Tls, Vhost]
    while shapes:
        for option in options_of(shapes.pop()):
            inner = element(option.type) or option.type
            if is_table(inner):
                shapes.append(inner)
            elif option.rule.unit in (BYTES, "ms"):
                assert option.rule.unit in option.name.split("_"), option.name
