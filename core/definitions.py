"""Definitions: the catalog as one JSON document, in the shape that RabbitMQ exports and imports.

`definitions` leaves out what is predeclared or belongs to a connection. `plan_definitions` makes one change of a whole document: all of it or none.
What is there already and equivalent stays; what differs in a way that a redeclaration could not change is an error. It may block (passwords in the
clear are hashed, the catalog is copied), so a caller with clients to serve runs it while it serves nobody, or in small documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import cbor2
from mypy_extensions import i64, mypyc_attr

from trilogue.core.arguments import QUEUE_TYPES
from trilogue.core.catalog import Catalog
from trilogue.core.entities import Destination, Exchange, Policy, Queue, User, Vhost, canonical
from trilogue.core.errors import InvalidArgument
from trilogue.core.passwords import ALGORITHMS, ARGON2ID, SHA256, hash_password, verify

VHOST_LIMITS_COMPONENT: Final = "vhost-limits"
OPERATOR_COMPONENT: Final = "operator_policy"


@mypyc_attr(allow_interpreted_subclasses=True)
class Placement(ABC):
    """Where new queues live; implemented by `core/broker.py`."""

    @abstractmethod
    def shard_for(self, vhost: str, name: str, durable: bool) -> i64: ...


# ------------------------------------------------------------------------------------------------ export

def definitions(catalog: Catalog, vhost: str | None = None) -> dict[str, object]:
    """Everything, or one vhost in the shape that names no vhost inside."""
    if vhost is not None:
        return of_vhost(catalog, catalog.vhost(vhost), False)
    whole: dict[str, object] = {
        "users": [of_user(user) for _, user in sorted(catalog.users.items())],
        "vhosts": [of_vhost_itself(found) for _, found in sorted(catalog.vhosts.items())],
        "permissions": [
            {"user": p.user, "vhost": p.vhost, "configure": p.configure, "write": p.write, "read": p.read}
            for _, p in sorted(catalog.permissions.items())],
        "topic_permissions": [
            {"user": t.user, "vhost": t.vhost, "exchange": t.exchange, "write": t.write, "read": t.read}
            for _, t in sorted(catalog.topic_permissions.items())],
        "global_parameters": [{"name": key[2], "value": p.value} for key, p in sorted(catalog.parameters.items()) if not key[0] and not key[1]],
    }
    lists: dict[str, list[object]] = {"parameters": [], "policies": [], "queues": [], "exchanges": [], "bindings": []}
    for _, found in sorted(catalog.vhosts.items()):
        for section, entries in of_vhost(catalog, found, True).items():
            assert isinstance(entries, list)
            lists[section].extend(entries)
    whole.update(lists)
    return whole


def of_user(user: User) -> dict[str, object]:
    return {"name": user.name, "password_hash": user.password_hash, "hashing_algorithm": user.algorithm, "tags": user.tags, "limits": user.limits}


def of_vhost_itself(vhost: Vhost) -> dict[str, object]:
    metadata = {"description": vhost.description, "tags": vhost.tags, "default_queue_type": vhost.default_queue_type}
    return {"name": vhost.name, "description": vhost.description, "tags": vhost.tags, "default_queue_type": vhost.default_queue_type,
            "metadata": metadata}


def of_vhost(catalog: Catalog, vhost: Vhost, named: bool) -> dict[str, object]:
    parameters: list[object] = []
    if vhost.limits:
        parameters.append(placed({"component": VHOST_LIMITS_COMPONENT, "name": "limits", "value": vhost.limits}, vhost, named))
    for _, policy in sorted(vhost.operator_policies.items()):
        parameters.append(placed({"component": OPERATOR_COMPONENT, "name": policy.name, "value": of_rule(policy)}, vhost, named))
    for key, parameter in sorted(catalog.parameters.items()):
        if key[0] == vhost.name and key[1]:
            parameters.append(placed({"component": key[1], "name": key[2], "value": parameter.value}, vhost, named))
    exchanges: list[object] = []
    bindings: list[object] = []
    for _, exchange in sorted(vhost.exchanges.items()):
        if not exchange.predeclared():
            exchanges.append(placed(of_exchange(exchange), vhost, named))
        for _, binding in sorted(exchange.outgoing.items()):
            if not binding.to_exchange and not exported(vhost.destinations[binding.destination]):
                continue
            bindings.append(placed({
                "source": binding.source, "destination": binding.destination, "destination_type": "exchange" if binding.to_exchange else "queue",
                "routing_key": binding.routing_key, "arguments": binding.arguments}, vhost, named))
    return {
        "parameters": parameters,
        "policies": [placed({"name": name, **of_rule(policy)}, vhost, named) for name, policy in sorted(vhost.policies.items())],
        "queues": [placed(of_destination(found), vhost, named) for _, found in sorted(vhost.destinations.items()) if exported(found)],
        "exchanges": exchanges,
        "bindings": bindings,
    }


def of_rule(policy: Policy) -> dict[str, object]:
    return {"pattern": policy.pattern, "apply-to": policy.apply_to, "definition": policy.definition, "priority": int(policy.priority)}


def of_exchange(exchange: Exchange) -> dict[str, object]:
    return {"name": exchange.name, "type": exchange.type, "durable": exchange.durable, "auto_delete": exchange.auto_delete,
            "internal": exchange.internal, "arguments": exchange.arguments}


def of_destination(found: Destination) -> dict[str, object]:
    arguments = dict(found.arguments)
    arguments["x-queue-type"] = QUEUE_TYPES[found.options.type]
    durable = not isinstance(found, Queue) or found.durable
    auto_delete = isinstance(found, Queue) and found.auto_delete
    return {"name": found.name, "durable": durable, "auto_delete": auto_delete, "type": QUEUE_TYPES[found.options.type], "arguments": arguments}


def exported(found: Destination) -> bool:
    return not isinstance(found, Queue) or not found.exclusive()


def placed(entry: dict[str, object], vhost: Vhost, named: bool) -> dict[str, object]:
    if named:
        entry["vhost"] = vhost.name
    return entry


# ------------------------------------------------------------------------------------------------ import

class Entry:
    """One object of the document, read with errors that say where it is."""

    def __init__(self, section: str, at: int, fields: object, vhost: str | None) -> None:
        self.place: str = f"{section}[{at}]"
        if not isinstance(fields, dict):
            raise InvalidArgument(f"{self.place} is not an object")
        self.fields: dict[str, Any] = fields
        self.only_vhost: str | None = vhost

    def wrong(self, key: str, wanted: str) -> InvalidArgument:
        return InvalidArgument(f"{self.place}: '{key}' must be {wanted}")

    def text(self, key: str, otherwise: str | None = None) -> str:
        value = self.fields.get(key, otherwise)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def vhost(self) -> str:
        return self.text("vhost") if self.only_vhost is None else self.only_vhost

    def flag(self, key: str, otherwise: bool = False) -> bool:
        value = self.fields.get(key, otherwise)
        if value == "true" or value == "false":     # rabbitmqadmin sends strings
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def number(self, key: str, otherwise: int = 0) -> int:
        value = self.fields.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int) or not -1 << 62 < value < 1 << 62:
            raise self.wrong(key, "a whole number")
        return value

    def table(self, key: str) -> dict[str, object]:
        value = self.fields.get(key, {})
        if not isinstance(value, dict):
            if value == []:         # what some JSON writers make of an empty table
                return {}
            raise self.wrong(key, "an object")
        return {str(name): item for name, item in value.items()}

    def words(self, key: str) -> list[str]:
        """A list, or a string with commas, as older versions write tags."""
        value = self.fields.get(key, [])
        if isinstance(value, str):
            return [word.strip() for word in value.split(",") if word.strip()]
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.wrong(key, "a list of strings")
        return list(value)


class Import:
    """Plays the document on a copy of the catalog, and collects what that changed."""

    def __init__(self, catalog: Catalog, placement: Placement, epoch: i64) -> None:
        self.scratch: Catalog = Catalog(catalog.queues_per_vhost_max)
        self.scratch.load(catalog.items())
        self.placement: Placement = placement
        self.epoch: i64 = epoch
        self.ops: list[object] = []

    def take(self, change: bytes | None) -> None:
        if change is not None:
            self.ops.extend(cbor2.loads(change)["ops"])
            self.scratch.apply(change)

    def vhost(self, e: Entry) -> None:
        metadata = Entry(f"{e.place}.metadata", 0, e.fields.get("metadata", {}), None)
        name = e.text("name")
        present = self.scratch.vhosts.get(name)
        description = e.text("description", metadata.text("description", present.description if present is not None else ""))
        tags = e.words("tags") or metadata.words("tags") or (present.tags if present is not None else [])
        type = e.fields.get("default_queue_type", metadata.fields.get("default_queue_type"))
        if type is None or type == "undefined":
            type = present.default_queue_type if present is not None else "classic"
        if not isinstance(type, str):
            raise e.wrong("default_queue_type", "a string")
        self.take(self.scratch.plan_vhost(name, description, tags, type))

    def user(self, e: Entry) -> None:
        name = e.text("name")
        present = self.scratch.users.get(name)
        if "password" in e.fields:
            password = e.text("password")
            if present is not None and verify(present.algorithm, present.password_hash, password):
                self.take(self.scratch.plan_user(name, present.password_hash, present.algorithm, e.words("tags")))
            else:
                self.take(self.scratch.plan_user(name, hash_password(password) if password else "", ARGON2ID, e.words("tags")))
        else:
            algorithm = e.text("hashing_algorithm", SHA256)
            if algorithm not in ALGORITHMS:
                raise e.wrong("hashing_algorithm", "one of " + ", ".join(ALGORITHMS))
            self.take(self.scratch.plan_user(name, e.text("password_hash"), algorithm, e.words("tags")))
        if "limits" in e.fields:
            self.take(self.scratch.plan_user_limits(name, e.table("limits")))

    def permission(self, e: Entry) -> None:
        self.take(self.scratch.plan_permission(e.vhost(), e.text("user"), e.text("configure"), e.text("write"), e.text("read")))

    def topic_permission(self, e: Entry) -> None:
        self.take(self.scratch.plan_topic_permission(e.vhost(), e.text("user"), e.text("exchange"), e.text("write"), e.text("read")))

    def global_parameter(self, e: Entry) -> None:
        self.take(self.scratch.plan_parameter("", "", e.text("name"), e.fields.get("value")))

    def parameter(self, e: Entry) -> None:
        component = e.text("component")
        if component == VHOST_LIMITS_COMPONENT:
            self.take(self.scratch.plan_vhost_limits(e.vhost(), e.table("value")))
        elif component == OPERATOR_COMPONENT:
            rule = Entry(f"{e.place}.value", 0, e.fields.get("value"), None)
            rule.fields = {**rule.fields, "name": e.text("name"), "vhost": e.vhost()}
            self.rule(rule, True)
        else:
            self.take(self.scratch.plan_parameter(e.vhost(), component, e.text("name"), e.fields.get("value")))

    def policy(self, e: Entry) -> None:
        self.rule(e, False)

    def rule(self, e: Entry, operator: bool) -> None:
        self.take(self.scratch.plan_policy(e.vhost(), e.text("name"), e.text("pattern"), e.table("definition"), e.text("apply-to", "all"),
                                           e.number("priority"), operator))

    def queue(self, e: Entry) -> None:
        vhost = e.vhost()
        name = e.text("name")
        durable = e.flag("durable", True)
        arguments = e.table("arguments")
        if "type" in e.fields and "x-queue-type" not in arguments:
            arguments["x-queue-type"] = e.text("type")
        shard = self.placement.shard_for(vhost, name, durable)
        # An export may hold server-named queues.
        self.take(self.scratch.plan_queue(vhost, name, durable, False, e.flag("auto_delete"), arguments, shard, 0, self.epoch, True))

    def exchange(self, e: Entry) -> None:
        self.take(self.scratch.plan_exchange(e.vhost(), e.text("name"), e.text("type"), e.flag("durable", True), e.flag("auto_delete"),
                                             e.flag("internal"), e.table("arguments"), self.epoch))

    def binding(self, e: Entry) -> None:
        to = e.text("destination_type", "queue")
        if to not in ("queue", "exchange"):
            raise e.wrong("destination_type", "'queue' or 'exchange'")
        self.take(self.scratch.plan_bind(e.vhost(), e.text("source"), e.text("destination"), e.text("routing_key", ""), e.table("arguments"),
                                         to == "exchange"))


def plan_definitions(catalog: Catalog, document: object, placement: Placement, epoch: i64, vhost: str | None = None) -> bytes | None:
    """One change for the whole document, or None. What is transient is void with `epoch`.

    With `vhost`, the document is one that names none inside, and goes there.
    """
    if not isinstance(document, dict):
        raise InvalidArgument("definitions must be an object")
    job = Import(catalog, placement, epoch)
    sections: list[tuple[str, Callable[[Entry], None]]] = [
        ("parameters", job.parameter), ("policies", job.policy), ("queues", job.queue), ("exchanges", job.exchange), ("bindings", job.binding)]
    if vhost is None:
        sections = [("vhosts", job.vhost), ("users", job.user), ("permissions", job.permission), ("topic_permissions", job.topic_permission),
                    ("global_parameters", job.global_parameter), *sections]
    else:
        catalog.vhost(vhost)
    for section, take in sections:
        entries = document.get(section, [])
        if not isinstance(entries, list):
            raise InvalidArgument(f"'{section}' must be a list")
        for at in range(len(entries)):
            take(Entry(section, at, entries[at], vhost))
    if not job.ops:
        return None
    return canonical({"v": int(catalog.version), "next": int(job.scratch.next_id), "ops": job.ops})
