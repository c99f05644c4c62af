"""From the configuration to the settings of each folder: the one place where the two vocabularies meet."""

from __future__ import annotations

import os

from trilogue.config.model import AUTO, Config
from trilogue.core.settings import AccessSettings, LimitSettings
from trilogue.store.settings import StoreSettings

GIB = 1 << 30
DISK_LOW_BYTES = 2 * GIB
DISK_LOW_PART = 20              # one twentieth of the disk
NEVER, LOOPBACK, ALWAYS = "never", "loopback", "always"


def store_settings(config: Config) -> StoreSettings:
    storage = config.storage
    return StoreSettings(
        segment_bytes=storage.segment_bytes, segment_ms=storage.segment_ms, durability=storage.durability,
        descriptors_max=storage.descriptors_max, checkpoint_map_bytes=storage.checkpoint_map_bytes)


def access_settings(config: Config) -> AccessSettings:
    auth = config.auth
    return AccessSettings(
        anonymous_user="" if auth.anonymous == NEVER else auth.anonymous_user, anonymous_remote=auth.anonymous == ALWAYS,
        remember_login_ms=auth.remember_login_ms)


def limit_settings(config: Config) -> LimitSettings:
    limits = config.limits
    one = limits.connection
    return LimitSettings(
        connections_max=limits.connections_max,
        unauthenticated_connections_max=limits.logins_pending_max,
        connections_per_user_max=limits.user.connections_max,
        connections_per_vhost_max=limits.vhost.connections_max,
        queues_per_vhost_max=limits.vhost.queues_max,
        channels_per_user_max=limits.user.channels_max,
        channels_per_connection_max=one.channels_max,
        consumers_per_connection_max=one.consumers_max,
        exclusive_queues_per_connection_max=one.exclusive_queues_max,
        unacknowledged_per_connection_max=one.unacknowledged_max,
        message_bytes_max=limits.message_bytes_max,
        frame_bytes_max=one.frame_bytes_max,
        unauthenticated_bytes_max=one.login_bytes_max,
        login_ms_max=one.login_timeout_ms,
        tls_handshake_ms_max=one.tls_timeout_ms,
        mqtt_packet_bytes_max=one.packet_bytes_max,
        stomp_headers_max=one.headers_max,
        stomp_header_bytes_max=one.header_bytes_max,
        table_depth_max=one.table_depth_max,
        topic_levels_max=limits.topic_levels_max)


def disk_low_bytes(config: Config) -> int:
    if config.storage.disk_low_bytes != AUTO:
        return config.storage.disk_low_bytes
    stat = os.statvfs(config.node.data_dir)
    return max(DISK_LOW_BYTES, stat.f_blocks * stat.f_frsize // DISK_LOW_PART)


def connection_descriptors_max(config: Config, limit: int) -> int:
    """How many of the process's descriptors connections may reach into; the rest is for log files."""
    return min(limit * config.limits.descriptors_percent_max // 100, limit - config.limits.descriptors_reserved)
