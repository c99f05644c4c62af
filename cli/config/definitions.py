"""What a configuration file may declare: the things that users otherwise make over a protocol. Applied idempotently at start and reload.

Names follow the AMQP model. A definition says what should exist; what is not mentioned is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from trilogue.config.option import BYTES, HASH, MS, NO_LIMIT, REGEX, free_table, option, required

VHOST_HELP = "The virtual host it belongs to."
ARGUMENTS_HELP = "Arguments, as a client would send them."
DEFAULT_VHOST = "/"
APPLY_TO = ("all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams")
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random", "x-local-random")


@dataclass(frozen=True)
class Vhost:
    name: str = required("The name; \"/\" always exists.")
    description: str = option("", "For people.")
    connections_max: int | None = option(None, "Overrides limits.vhost.connections_max here.", low=1, words=NO_LIMIT)
    queues_max: int | None = option(None, "Overrides limits.vhost.queues_max here.", low=1, words=NO_LIMIT)


@dataclass(frozen=True)
class User:
    name: str = required("The login name.")
    password: str = option("", "In clear; it is hashed before it is stored. Prefer password_hash in files that are shared.", secret=True)
    password_hash: str = option("", "An argon2 hash, or RabbitMQ's base64 of salt and SHA-256 or SHA-512.", form=HASH, secret=True)
    tags: tuple[str, ...] = option((), "What the user may do over HTTP.", choices=("administrator", "monitoring", "policymaker", "management"))
    connections_max: int | None = option(None, "Overrides limits.user.connections_max for this user.", low=1, words=NO_LIMIT)
    channels_max: int | None = option(None, "Overrides limits.user.channels_max for this user.", low=1, words=NO_LIMIT)


@dataclass(frozen=True)
class Permission:
    user: str = required("Who.")
    vhost: str = option(DEFAULT_VHOST, "Where.")
    configure: str = option("", "Names that the user may declare and delete. Empty: none.", form=REGEX)
    write: str = option("", "Names that the user may publish to. Empty: none.", form=REGEX)
    read: str = option("", "Names that the user may consume from. Empty: none.", form=REGEX)


@dataclass(frozen=True)
class TopicPermission:
    user: str = required("Who.")
    vhost: str = option(DEFAULT_VHOST, "Where.")
    exchange: str = option("amq.topic", "The topic exchange whose routing keys are meant.")
    write: str = option("", "Routing keys that the user may publish with. Empty: none.", form=REGEX)
    read: str = option("", "Routing keys that the user may bind with. Empty: none.", form=REGEX)


@dataclass(frozen=True)
class Exchange:
    name: str = required("The name.")
    vhost: str = option(DEFAULT_VHOST, VHOST_HELP)
    type: str = option("direct", "How it routes.", choices=EXCHANGE_TYPES)
    durable: bool = option(True, "Does it survive a restart?")
    auto_delete: bool = option(False, "Is it deleted with its last binding?")
    internal: bool = option(False, "Is it closed to publishers and reached only through bindings?")
    arguments: dict[str, object] = free_table(ARGUMENTS_HELP)


@dataclass(frozen=True)
class Queue:
    name: str = required("The name.")
    vhost: str = option(DEFAULT_VHOST, VHOST_HELP)
    durable: bool = option(True, "Does it survive a restart?")
    auto_delete: bool = option(False, "Is it deleted with its last consumer?")
    arguments: dict[str, object] = free_table(ARGUMENTS_HELP)


@dataclass(frozen=True)
class Binding:
    source: str = required("The exchange that messages come from.")
    destination: str = required("The queue, topic or exchange that they go to.")
    vhost: str = option(DEFAULT_VHOST, VHOST_HELP)
    destination_type: str = option("queue", "What the destination is.", choices=("queue", "topic", "exchange"))
    routing_key: str = option("", "The key or pattern.")
    arguments: dict[str, object] = free_table(ARGUMENTS_HELP)


@dataclass(frozen=True)
class Topic:
    name: str = required("The name.")
    vhost: str = option(DEFAULT_VHOST, VHOST_HELP)
    partitions: int = option(1, "How many logs it has; can be raised later, never lowered.", low=1, high=10_000)
    retention_ms: int | None = option(None, "Overrides storage.topic_retention_ms.", unit=MS, low=1_000)
    retention_bytes: int | None = option(None, "Overrides storage.topic_retention_bytes, per partition.", unit=BYTES, low=1_048_576)
    cleanup: str = option("delete", "Old records are deleted, or the newest of each key is kept.", choices=("delete", "compact"))
    durability: str = option("", "Overrides storage.durability. Empty: as there.", choices=("", "fsync", "os"))


@dataclass(frozen=True)
class Policy:
    name: str = required("The name.")
    pattern: str = required("The names it applies to.", form=REGEX)
    vhost: str = option(DEFAULT_VHOST, VHOST_HELP)
    apply_to: str = option("all", "What it applies to; topics are streams.", choices=APPLY_TO)
    priority: int = option(0, "The highest one wins.", low=-1_000_000, high=1_000_000)
    definition: dict[str, object] = free_table("The settings, such as message-ttl or dead-letter-exchange.")
