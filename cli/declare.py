"""Makes what the configuration defines exist. Idempotent: what is there and equivalent stays, what is not mentioned is left alone.

Everything is planned before anything is changed, except topics, which may also be given more partitions. Blocking (passwords are hashed), so this
is for the start and, in small doses, for a reload.
"""

from __future__ import annotations

from typing import Any

from trilogue.config import definitions as asked
from trilogue.config.model import Config
from trilogue.core.administration import Administration
from trilogue.core.definitions import Placement, plan_definitions
from trilogue.core.entities import Topic
from trilogue.core.errors import OperatingError, PeerError
from trilogue.core.passwords import ARGON2ID, SHA256, SHA512, hash_password

DEFAULT_VHOST = "/"
GUEST = "guest"
EVERYTHING = ".*"
SHA256_TEXT_LENGTH = 48         # base64 of 4 + 32 bytes


class DefinitionError(OperatingError):
    """The configuration defines something that cannot be, or that exists otherwise."""

    retry = False


class NodePlacement(Placement):
    def __init__(self, administration: Administration) -> None:
        self.administration = administration

    def shard_for(self, vhost: str, name: str, durable: bool) -> int:
        return int(self.administration.place(name) if durable else self.administration.transient_shard())


def declare(config: Config, administration: Administration) -> None:
    """`DefinitionError` says which definition, and why."""
    broker = administration.broker
    try:
        declare_defaults(config, administration)
        administration.change(plan_definitions(broker.catalog, document(config), NodePlacement(administration), broker.epoch))
        for topic in config.topics:
            declare_topic(topic, administration)
        # Bindings may lead to topics, so they come last.
        bindings = {"bindings": [binding_entry(one) for one in config.bindings]}
        administration.change(plan_definitions(broker.catalog, bindings, NodePlacement(administration), broker.epoch))
    except PeerError as error:
        raise DefinitionError(f"the configuration's definitions cannot be applied: {error}") from error


def declare_defaults(config: Config, administration: Administration) -> None:
    """The first start makes the default vhost and guest. Who deletes either later has a reason."""
    catalog = administration.broker.catalog
    first = not catalog.vhosts and not catalog.users
    if first:
        administration.change(catalog.plan_vhost(DEFAULT_VHOST, "default virtual host"))
    if first and config.auth.guest:
        administration.change(catalog.plan_user(GUEST, hash_password(GUEST), ARGON2ID, ["administrator"]))
        administration.change(catalog.plan_permission(DEFAULT_VHOST, GUEST, EVERYTHING, EVERYTHING, EVERYTHING))
    if not config.auth.guest and all(user.name != GUEST for user in config.users):
        administration.change(catalog.plan_delete_user(GUEST))


def declare_topic(topic: asked.Topic, administration: Administration) -> None:
    catalog = administration.broker.catalog
    found = catalog.find_destination(topic.vhost, topic.name)
    if isinstance(found, Topic):
        if len(found.partitions) < topic.partitions:
            administration.change(catalog.plan_partitions(topic.vhost, topic.name, topic.partitions))
    else:
        administration.change(catalog.plan_topic(topic.vhost, topic.name, topic.partitions, topic_arguments(topic)))


def topic_arguments(topic: asked.Topic) -> dict[str, object]:
    arguments: dict[str, object] = {}
    if topic.retention_ms is not None:
        arguments["x-max-age"] = f"{-(-topic.retention_ms // 1000)}s"
    if topic.retention_bytes is not None:
        arguments["x-max-length-bytes"] = topic.retention_bytes
    if topic.cleanup == "compact":
        arguments["x-compact"] = True
    if topic.durability:
        arguments["x-durability"] = topic.durability
    return arguments


def document(config: Config) -> dict[str, Any]:
    """The definitions in the shape of an import, without topics and bindings."""
    return {
        "vhosts": [{"name": one.name, "description": one.description} for one in config.vhosts],
        "users": [user_entry(one) for one in config.users],
        "permissions": [
            {"user": one.user, "vhost": one.vhost, "configure": one.configure, "write": one.write, "read": one.read} for one in config.permissions],
        "topic_permissions": [
            {"user": one.user, "vhost": one.vhost, "exchange": one.exchange, "write": one.write, "read": one.read}
            for one in config.topic_permissions],
        "parameters": [
            {"component": "vhost-limits", "name": "limits", "vhost": one.name, "value": limits}
            for one in config.vhosts if (limits := limits_of({"max-connections": one.connections_max, "max-queues": one.queues_max}))],
        "policies": [
            {"name": one.name, "vhost": one.vhost, "pattern": one.pattern, "apply-to": one.apply_to, "priority": one.priority,
             "definition": one.definition} for one in config.policies],
        "exchanges": [
            {"name": one.name, "vhost": one.vhost, "type": one.type, "durable": one.durable, "auto_delete": one.auto_delete,
             "internal": one.internal, "arguments": one.arguments} for one in config.exchanges],
        "queues": [
            {"name": one.name, "vhost": one.vhost, "durable": one.durable, "auto_delete": one.auto_delete, "arguments": one.arguments}
            for one in config.queues],
    }


def binding_entry(binding: asked.Binding) -> dict[str, Any]:
    kind = "exchange" if binding.destination_type == "exchange" else "queue"
    return {"source": binding.source, "vhost": binding.vhost, "destination": binding.destination, "destination_type": kind,
            "routing_key": binding.routing_key, "arguments": binding.arguments}


def user_entry(user: asked.User) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": user.name, "tags": list(user.tags)}
    if user.password_hash:
        entry["password_hash"] = user.password_hash
        entry["hashing_algorithm"] = algorithm_of(user.password_hash)
    else:
        entry["password"] = user.password
    limits = limits_of({"max-connections": user.connections_max, "max-channels": user.channels_max})
    if limits:
        entry["limits"] = limits
    return entry


def algorithm_of(password_hash: str) -> str:
    if password_hash.startswith("$argon2"):
        return ARGON2ID
    return SHA256 if len(password_hash) == SHA256_TEXT_LENGTH else SHA512


def limits_of(limits: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in limits.items() if value is not None}
