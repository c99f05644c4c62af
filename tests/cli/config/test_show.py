from __future__ import annotations

import pathlib
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trilogue.config.load import load
from trilogue.config.show import effective, template, toml

VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8"), max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@given(VALUES)
def test_values_survive(value: Any) -> None:
    assert tomllib.loads(f"v = {toml(value)}")["v"] == value


def test_the_effective_values_are_a_configuration_that_means_the_same(tmp_path: pathlib.Path) -> None:
    first = load(None, {}, ["node.id=x", "storage.disk_low_bytes=5 GiB", "listeners.mqtt.bind=", 'queues=[{name="q", arguments={x-max-length=3}}]'])
    (tmp_path / "t.toml").write_text("\n".join(line for line in effective(first, origin=True) if ".tls = " not in line))
    second = load(tmp_path / "t.toml", {}, ["node.data_dir=data"])
    assert second.config == first.config


def test_secrets_are_masked_wherever_they_are() -> None:
    arguments = [
        'users=[{name="u", password="canary"}, {name="v", password_hash="$argon2-canary"}]',
        "coordination.auth=digest:canary",
        'listeners.http.options={cookie_secret="canary", upstream="http://u:canary@host/"}',
    ]
    text = "\n".join(effective(load(None, {}, arguments), origin=True))
    assert "********" in text
    assert "canary" not in text


def test_origins_are_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.toml").write_text("[auth]\n  guest = false\n[[users]]\nname = 'u'\n")
    lines = list(effective(load(tmp_path / "t.toml", {"TRILOGUE_NODE__RACK": "r"}, ["node.id=z"]), origin=True))
    assert f"auth.guest = false  # {tmp_path}/t.toml:2:3" in lines
    assert 'node.rack = "r"  # environment TRILOGUE_NODE__RACK' in lines
    assert 'node.id = "z"  # --set node.id' in lines
    assert "storage.shards = 4  # default" in lines


def test_the_template_is_the_defaults(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.toml").write_text(template())
    assert load(tmp_path / "t.toml", {}, ["node.data_dir=data"]).config == load().config
