"""The configuration: frozen, complete and valid once `load` has returned it. This file is the schema (see `option.py`).

Sizes are in bytes and times in milliseconds, as the names say; a file may also write "64 MiB" or "7 days".
"""

from __future__ import annotations

from dataclasses import dataclass

from trilogue.config.definitions import Binding, Exchange, Permission, Policy, Queue, Topic, TopicPermission, User, Vhost
from trilogue.config.option import ADDRESS, BYTES, FILE, FOLDER, MS, NAME, NO_LIMIT, Address, free_table, option, required, table

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SECOND_MS = 1_000
DAY_MS = 24 * 3600 * SECOND_MS
AUTO = 0


@dataclass(frozen=True)
class Node:
    id: str = option("1", "This node's name; no other node of the cluster may have it.", form=NAME)
    data_dir: str = option("data", "Where everything is kept. In a file, a relative path starts at the file's own folder.", form=FOLDER)
    advertised_host: str = option("", "The host name under which other nodes and clients reach this one. Empty: the address it binds to.")
    rack: str = option("", "Replicas of a partition are spread over racks.")
    plugins: tuple[str, ...] = option((), "Frontends besides those that installed packages announce, each name=package.module:Class.")
    drain_timeout_ms: int = option(30 * SECOND_MS, "How long a stop waits for clients to leave.", unit=MS, low=0, high=3_600_000, reload=True)


@dataclass(frozen=True)
class Tls:
    cert: str = required("The certificate with its chain, PEM.", form=FILE, reload=True)
    key: str = required("Its private key, PEM.", form=FILE, reload=True)
    key_password: str = option("", "Opens the private key.", secret=True, reload=True)
    client_ca: str = option("", "Authorities that client certificates are checked against, PEM.", form=FILE, reload=True)
    client_cert: str = option("none", "Must clients show a certificate?", choices=("none", "optional", "required"), reload=True)
    version_min: str = option("1.2", "The oldest version that is spoken.", choices=("1.2", "1.3"), reload=True)


@dataclass(frozen=True)
class Listener:
    bind: Address | None = option(None, "host:port. Empty or missing: off. Port 0: a free one.", form=ADDRESS)
    frontend: str = option("", "The protocol spoken there. Empty: the one that the listener is named after.")
    vhost: str = option("", "The virtual host for clients that cannot name one. Empty: auth.vhost.")
    tls: Tls | None = option(None, "Speak TLS only. Certificates are read again on reload.")
    options: dict[str, object] = free_table("Settings of the frontend itself.")


@dataclass(frozen=True)
class Coordination:
    kind: str = option("local", "Who decides which node leads: this node alone, or ZooKeeper for many.", choices=("local", "zookeeper"))
    hosts: tuple[str, ...] = option((), "ZooKeeper servers, each host:port.")
    path: str = option("/trilogue", "The node in ZooKeeper below which this cluster lives.")
    session_timeout_ms: int = option(6 * SECOND_MS, "A node that is silent for so long has lost its leaderships.", unit=MS, low=1_000, high=120_000)
    auth: str = option("", "ZooKeeper credentials, scheme:credentials.", secret=True)


@dataclass(frozen=True)
class Storage:
    durability: str = option("fsync", "A confirm means: on disk, or: handed to the operating system.", choices=("fsync", "os"))
    segment_bytes: int = option(GIB, "A log file is closed and a new one begun at this size.", unit=BYTES, low=MIB, high=4 * GIB)
    segment_ms: int = option(DAY_MS, "A log file older than this is closed at the next write, so that retention can act.", unit=MS, low=SECOND_MS,
                             high=365 * DAY_MS)
    shards: int = option(4, "Logs that queues are spread over. Fixed when the data directory is made.", low=1, high=256)
    checkpoint_interval_ms: int = option(1_000, "How often the state is saved; a restart replays what came after.", unit=MS, low=10, high=600_000,
                                         reload=True)
    checkpoint_map_bytes: int = option(64 * GIB, "Address space for checkpoints; used only as far as it is filled.", unit=BYTES, low=64 * MIB,
                                       high=16_384 * GIB)
    unsynced_bytes_max: int = option(64 * MIB, "Publishers wait when so much is not on disk yet.", unit=BYTES, low=MIB, high=16 * GIB, reload=True)
    disk_low_bytes: int = option(AUTO, "Publishers wait when less is free. auto: 2 GiB or 5 % of the disk, whichever is more.", unit=BYTES, low=MIB,
                                 words={"auto": AUTO}, reload=True)
    topic_retention_ms: int = option(7 * DAY_MS, "Topics keep records for so long.", unit=MS, low=SECOND_MS, words=NO_LIMIT, reload=True)
    topic_retention_bytes: int = option(-1, "Topics keep so much, per partition.", unit=BYTES, low=MIB, words=NO_LIMIT, reload=True)
    queue_window_bytes: int = option(4 * MIB, "What a queue keeps in memory at its head and at its tail; the rest stays on disk.", unit=BYTES,
                                     low=64 * KIB, high=GIB, reload=True)
    queue_windows_bytes_max: int = option(256 * MIB, "What all queues together keep in memory.", unit=BYTES, low=MIB, high=1_024 * GIB, reload=True)
    descriptors_max: int = option(512, "Log files that are kept open.", low=8, high=1_000_000)


@dataclass(frozen=True)
class ConnectionLimits:
    channels_max: int = option(2_047, "AMQP channels.", low=1, high=65_535, reload=True)
    consumers_max: int = option(1_000, "Consumers and subscriptions.", low=1, high=1_000_000, reload=True)
    exclusive_queues_max: int = option(10_000, "Exclusive queues.", low=1, high=1_000_000, reload=True)
    unacknowledged_max: int = option(-1, "Deliveries that wait for an acknowledgement.", low=1, words=NO_LIMIT, reload=True)
    consumer_buffer_bytes: int = option(MIB, "Unread output at which a consumer is fed no further.", unit=BYTES, low=4 * KIB, high=GIB, reload=True)
    parked_bytes_max: int = option(MIB, "Publishes kept for a held-back connection that still has messages to acknowledge.", unit=BYTES, low=4 * KIB,
                                   high=GIB, reload=True)
    frame_bytes_max: int = option(128 * KIB, "One AMQP frame.", unit=BYTES, low=4 * KIB, high=16 * MIB, reload=True)
    packet_bytes_max: int = option(2_000_000, "One MQTT packet.", unit=BYTES, low=KIB, high=268_435_455, reload=True)
    headers_max: int = option(64, "Headers of one STOMP frame.", low=8, high=10_000, reload=True)
    header_bytes_max: int = option(8 * KIB, "One STOMP header.", unit=BYTES, low=128, high=MIB, reload=True)
    table_depth_max: int = option(32, "Tables within tables.", low=1, high=128, reload=True)
    login_bytes_max: int = option(8 * KIB, "What is kept for a client before it has logged in.", unit=BYTES, low=KIB, high=MIB, reload=True)
    login_timeout_ms: int = option(10 * SECOND_MS, "A client must have logged in by then.", unit=MS, low=100, high=600_000, reload=True)
    tls_timeout_ms: int = option(5 * SECOND_MS, "A TLS handshake must be over by then.", unit=MS, low=100, high=600_000, reload=True)


@dataclass(frozen=True)
class UserLimits:
    connections_max: int = option(-1, "Connections of one user.", low=1, words=NO_LIMIT, reload=True)
    channels_max: int = option(-1, "Channels of one user, over all connections.", low=1, words=NO_LIMIT, reload=True)


@dataclass(frozen=True)
class VhostLimits:
    connections_max: int = option(-1, "Connections to one virtual host.", low=1, words=NO_LIMIT, reload=True)
    queues_max: int = option(-1, "Queues and topics in one virtual host.", low=1, words=NO_LIMIT, reload=True)


@dataclass(frozen=True)
class Limits:
    message_bytes_max: int = option(16 * MIB, "One message, properties included.", unit=BYTES, low=KIB, high=512 * MIB, reload=True)
    batch_bytes_max: int = option(32 * MIB, "One batch in the log.", unit=BYTES, low=64 * KIB, high=GIB, reload=True)
    topic_levels_max: int = option(128, "Levels of a topic or words of a routing key.", low=8, high=32_768, reload=True)
    connections_max: int = option(-1, "Connections to this node. The descriptor limit holds besides.", low=1, words=NO_LIMIT, reload=True)
    logins_pending_max: int = option(1_024, "Connections that have not logged in yet.", low=1, high=1_000_000, reload=True)
    descriptors_reserved: int = option(64, "Descriptors that connections never get.", low=16, high=65_536, reload=True)
    descriptors_percent_max: int = option(90, "Connections are refused when so many of the descriptors are in use.", unit="percent", low=10, high=100,
                                          reload=True)
    connection: ConnectionLimits = table(ConnectionLimits, "For one connection.")
    user: UserLimits = table(UserLimits, "For all connections of one user, unless the user's definition says otherwise.")
    vhost: VhostLimits = table(VhostLimits, "For one virtual host, unless its definition says otherwise.")


@dataclass(frozen=True)
class Auth:
    guest: bool = option(True, "Does the user guest with password guest exist? It may only log in from the same machine.")
    anonymous: str = option("loopback", "Who may connect without a name where the protocol allows it (MQTT).",
                            choices=("never", "loopback", "always"), reload=True)
    anonymous_user: str = option("guest", "The user whose permissions a client without a name has.", reload=True)
    vhost: str = option("/", "The virtual host of a client that names none.", reload=True)
    remember_login_ms: int = option(300 * SECOND_MS, "A verified password is not hashed again for so long. 0: always hash.", unit=MS, low=0,
                                    high=3_600_000, reload=True)


@dataclass(frozen=True)
class Logging:
    level: str = option("info", "The least that is logged.", choices=("debug", "info", "warning", "error"), reload=True)
    format: str = option("auto", "human, json, or auto: human on a terminal and json otherwise.", choices=("auto", "human", "json"), reload=True)
    repeats_per_second_max: int = option(10, "Lines a second with the same cause; the rest is counted.", low=1, high=10_000, reload=True)


@dataclass(frozen=True)
class Config:
    """The whole. `listeners` holds only those that are on."""

    node: Node = table(Node, "Who this node is.")
    listeners: dict[str, Listener] = free_table("Where clients and nodes connect, by name. Without any, the defaults shown here are on.")
    coordination: Coordination = table(Coordination, "How nodes agree.")
    storage: Storage = table(Storage, "The log and its checkpoints.")
    limits: Limits = table(Limits, "A limit on everything.")
    auth: Auth = table(Auth, "Who may log in.")
    logging: Logging = table(Logging, "What is written to standard error.")
    vhosts: tuple[Vhost, ...] = option((), "Virtual hosts.", reload=True)
    users: tuple[User, ...] = option((), "Users.", reload=True)
    permissions: tuple[Permission, ...] = option((), "What users may do, by patterns of names.", reload=True)
    topic_permissions: tuple[TopicPermission, ...] = option((), "What users may do, by patterns of routing keys.", reload=True)
    exchanges: tuple[Exchange, ...] = option((), "Exchanges.", reload=True)
    queues: tuple[Queue, ...] = option((), "Queues.", reload=True)
    bindings: tuple[Binding, ...] = option((), "Bindings.", reload=True)
    topics: tuple[Topic, ...] = option((), "Topics.", reload=True)
    policies: tuple[Policy, ...] = option((), "Policies.", reload=True)


DEFAULT_BINDS = {"amqp": 5672, "mqtt": 1883, "stomp": 61613, "http": 15672, "native": 7672}
FRONTENDS = (*DEFAULT_BINDS, "replication")


def default_listeners() -> dict[str, Listener]:
    return {name: Listener(bind=Address("127.0.0.1", port), frontend=name) for name, port in DEFAULT_BINDS.items()}
