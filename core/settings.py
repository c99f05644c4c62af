"""The core's settings: one frozen dataclass per noun, validated where the configuration is read. -1 means: no limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AccessSettings:
    """How people log in, and how long an answer is remembered."""

    loopback_users: tuple[str, ...] = ("guest",)    # may log in from this machine only
    anonymous_user: str = "guest"                   # who somebody without credentials is
    anonymous_remote: bool = False                  # may there be such people on other machines?
    remember_login_ms: int = 300_000                # verified credentials skip the hash for that long
    remembered_logins_max: int = 20_000
    decisions_max: int = 65_536
    patterns_max: int = 4_096


@dataclass(frozen=True)
class LimitSettings:
    """What one node, vhost, user or connection may use."""

    connections_max: int = -1                       # on this node
    unauthenticated_connections_max: int = 1_024
    connections_per_user_max: int = -1              # a limit stored for the user or vhost goes before this one
    connections_per_vhost_max: int = -1
    queues_per_vhost_max: int = -1
    channels_per_user_max: int = -1
    channels_per_connection_max: int = 2_047
    consumers_per_connection_max: int = 1_000
    exclusive_queues_per_connection_max: int = 10_000
    unacknowledged_per_connection_max: int = -1
    message_bytes_max: int = 16 << 20
    frame_bytes_max: int = 128 << 10
    unauthenticated_bytes_max: int = 8 << 10
    login_ms_max: int = 10_000
    tls_handshake_ms_max: int = 5_000
    mqtt_packet_bytes_max: int = 2_000_000
    stomp_headers_max: int = 64
    stomp_header_bytes_max: int = 8 << 10
    table_depth_max: int = 32
    topic_levels_max: int = 128
