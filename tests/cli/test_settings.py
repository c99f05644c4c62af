from __future__ import annotations

import dataclasses
import os
import pathlib

from trilogue.config.load import load
from trilogue.config.model import Config
from trilogue.core.settings import AccessSettings, LimitSettings
from trilogue.settings import access_settings, connection_descriptors_max, disk_low_bytes, limit_settings, store_settings
from trilogue.store.settings import StoreSettings


def config(*arguments: str) -> Config:
    return load(None, {}, arguments).config


def test_the_defaults_of_both_vocabularies_are_the_same() -> None:
    assert limit_settings(config()) == LimitSettings()
    assert access_settings(config()) == AccessSettings()
    assert store_settings(config()) == StoreSettings()


def test_every_limit_can_be_configured() -> None:
    """A limit that the configuration does not reach would show up as unchanged."""
    changed = limit_settings(config(
        "limits.connections_max=7", "limits.logins_pending_max=7", "limits.user.connections_max=7", "limits.vhost.connections_max=7",
        "limits.vhost.queues_max=7", "limits.user.channels_max=7", "limits.connection.channels_max=7", "limits.connection.consumers_max=7",
        "limits.connection.exclusive_queues_max=7", "limits.connection.unacknowledged_max=7", "limits.message_bytes_max=7000",
        "limits.connection.frame_bytes_max=7000", "limits.connection.login_bytes_max=7000", "limits.connection.login_timeout_ms=700",
        "limits.connection.tls_timeout_ms=700", "limits.connection.packet_bytes_max=7000", "limits.connection.headers_max=9",
        "limits.connection.header_bytes_max=700", "limits.connection.table_depth_max=7", "limits.topic_levels_max=9"))
    same = [field.name for field in dataclasses.fields(LimitSettings) if getattr(changed, field.name) == getattr(LimitSettings(), field.name)]
    assert same == []


def test_nobody_without_a_name() -> None:
    assert access_settings(config("auth.anonymous=never")).anonymous_user == ""
    always = access_settings(config("auth.anonymous=always", "auth.anonymous_user=few"))
    assert (always.anonymous_user, always.anonymous_remote) == ("few", True)


def test_the_low_mark_of_the_disk(tmp_path: pathlib.Path) -> None:
    folder = f"node.data_dir={tmp_path}"
    stat = os.statvfs(tmp_path)
    assert disk_low_bytes(config(folder)) == max(2 << 30, stat.f_blocks * stat.f_frsize // 20)
    assert disk_low_bytes(config(folder, "storage.disk_low_bytes=5 MiB")) == 5 << 20


def test_descriptors_for_connections() -> None:
    assert connection_descriptors_max(config(), 20_000) == 18_000
    assert connection_descriptors_max(config(), 256) == 192
