from __future__ import annotations

import pathlib

from trilogue.config.diff import Change, diff
from trilogue.config.load import load

USER = 'users=[{name="u", password="%s"}]'


def test_no_change() -> None:
    assert diff(load().config, load().config) == ([], [])


def test_what_can_be_applied_is_told_from_what_needs_a_restart() -> None:
    new = load(None, {}, ["logging.level=debug", "storage.shards=8", "limits.connection.channels_max=9", "listeners.amqp.bind=127.0.0.1:1"]).config
    now, later = diff(load().config, new)
    assert now == [Change("limits.connection.channels_max", 2047, 9), Change("logging.level", "info", "debug")]
    assert [change.key for change in later] == ["listeners.amqp.bind", "storage.shards"]


def test_definitions_can_be_reloaded_and_their_secrets_are_not_shown() -> None:
    now, later = diff(load(None, {}, [USER % "canary1"]).config, load(None, {}, [USER % "canary2"]).config)
    assert [change.key for change in now] == ["users"]
    assert later == []
    assert "canary" not in repr(now)


def test_a_listener_that_comes_or_goes_needs_a_restart(tmp_path: pathlib.Path) -> None:
    for name in ("c", "k"):
        (tmp_path / name).touch()
    plain = load().config
    secure = load(None, {}, [f"listeners.amqp.tls={{cert='{tmp_path}/c', key='{tmp_path}/k'}}"]).config
    now, later = diff(plain, secure)
    assert now == []
    assert "listeners.amqp.tls.cert" in [change.key for change in later]
    now, later = diff(plain, load(None, {}, ["listeners.amqp.bind="]).config)
    assert now == []
    assert "listeners.amqp.bind" in [change.key for change in later]


def test_another_certificate_can_be_reloaded(tmp_path: pathlib.Path) -> None:
    for name in ("c", "d", "k"):
        (tmp_path / name).touch()
    configs = [load(None, {}, [f"listeners.amqp.tls={{cert='{tmp_path}/{name}', key='{tmp_path}/k'}}"]).config for name in ("c", "d")]
    now, later = diff(*configs)
    assert [change.key for change in now] == ["listeners.amqp.tls.cert"]
    assert later == []
