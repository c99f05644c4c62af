"""The things users name, as small objects: vhost, user, permissions, exchange, queue, topic, binding, policy, parameter.

An entity is known by its kind and its *identity* (a list of names); its *body* is the rest. Both are CBOR in changes and in checkpoints.
Only the catalog makes and alters entities; everybody else reads them, and may keep a reference until told that the entity is gone.
"""

from __future__ import annotations

from typing import Any, Final

import cbor2
from mypy_extensions import i64

from trilogue.core.arguments import QUEUE_TYPES, QueueOptions, stored
from trilogue.core.errors import FormatTooNew, InvalidArgument, ResourceLocked
from trilogue.core.ports import TO_QUEUE, TO_TOPIC

# Kinds. Whatever an entity refers to has a lower number, so that a checkpoint can be loaded in the order of its keys.
COUNTERS: Final = 0
VHOST: Final = 1
USER: Final = 2
PERMISSION: Final = 3
TOPIC_PERMISSION: Final = 4
POLICY: Final = 5
OPERATOR_POLICY: Final = 6
PARAMETER: Final = 7
EXCHANGE: Final = 8
QUEUE: Final = 9
TOPIC: Final = 10
BINDING: Final = 11

NAME_BYTES_MAX: Final = 255
ARGUMENTS_BYTES_MAX: Final = 65_536
DELAYED: Final = "x-delayed-message"
ROUTING_TYPES: Final = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random", "x-local-random"]
EXCHANGE_TYPES: Final = [*ROUTING_TYPES, DELAYED]
PREDECLARED: Final = {
    "": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers", "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
}


def in_vhost(what: str, name: str, vhost: str) -> str:
    """How errors name a thing: `queue 'q' in vhost '/'`."""
    return f"{what} '{name}' in vhost '{vhost}'"


def check_name(what: str, name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} name is not valid UTF-8") from None
    if size > NAME_BYTES_MAX:
        raise InvalidArgument(f"{what} name is longer than {NAME_BYTES_MAX} bytes")


def canonical(value: object) -> bytes:
    """The one encoding of a value: equal values, equal bytes. Only peers bring values that have none."""
    try:
        return cbor2.dumps(value, canonical=True)
    except (ValueError, TypeError, RecursionError, cbor2.CBOREncodeError) as e:
        raise InvalidArgument(f"a value cannot be kept: {e}") from None


def check_arguments(where: str, arguments: dict[str, object]) -> None:
    if len(canonical(arguments)) > ARGUMENTS_BYTES_MAX:
        raise InvalidArgument(f"the arguments of {where} are longer than {ARGUMENTS_BYTES_MAX} bytes")


class Entity:
    def __init__(self, kind: i64) -> None:
        self.kind: i64 = kind

    def identity(self) -> list[object]:
        raise NotImplementedError

    def body(self) -> dict[str, object]:
        raise NotImplementedError


class Vhost(Entity):
    """A namespace of exchanges, queues and policies, which it holds."""

    def __init__(self, name: str, description: str = "", tags: list[str] | None = None, default_queue_type: str = "classic",
                 limits: dict[str, int] | None = None) -> None:
        super().__init__(VHOST)
        self.name: str = name
        self.description: str = description
        self.tags: list[str] = [] if tags is None else tags
        self.default_queue_type: str = default_queue_type
        self.limits: dict[str, int] = {} if limits is None else limits      # max-connections, max-queues; negative: no limit
        self.exchanges: dict[str, Exchange] = {}
        self.destinations: dict[str, Destination] = {}
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def identity(self) -> list[object]:
        return [self.name]

    def body(self) -> dict[str, object]:
        return {"description": self.description, "tags": self.tags, "default_queue_type": self.default_queue_type, "limits": self.limits}


class User(Entity):
    """`password_hash` is argon2's own text, or base64 as RabbitMQ has it; `algorithm` says which. Empty: this user cannot log in by password."""

    def __init__(self, name: str, password_hash: str, algorithm: str, tags: list[str], limits: dict[str, int]) -> None:
        super().__init__(USER)
        self.name: str = name
        self.password_hash: str = password_hash
        self.algorithm: str = algorithm
        self.tags: list[str] = tags
        self.limits: dict[str, int] = limits        # max-connections, max-channels; negative: no limit

    def identity(self) -> list[object]:
        return [self.name]

    def body(self) -> dict[str, object]:
        return {"hash": self.password_hash, "algorithm": self.algorithm, "tags": self.tags, "limits": self.limits}


class Permission(Entity):
    """What a user may configure, write and read in a vhost, by patterns on names. An empty pattern matches nothing."""

    def __init__(self, vhost: str, user: str, configure: str, write: str, read: str) -> None:
        super().__init__(PERMISSION)
        self.vhost: str = vhost
        self.user: str = user
        self.configure: str = configure
        self.write: str = write
        self.read: str = read

    def identity(self) -> list[object]:
        return [self.vhost, self.user]

    def body(self) -> dict[str, object]:
        return {"configure": self.configure, "write": self.write, "read": self.read}


class TopicPermission(Entity):
    """Which routing keys a user may write to and read from one topic exchange. Without one, all."""

    def __init__(self, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
        super().__init__(TOPIC_PERMISSION)
        self.vhost: str = vhost
        self.user: str = user
        self.exchange: str = exchange
        self.write: str = write
        self.read: str = read

    def identity(self) -> list[object]:
        return [self.vhost, self.user, self.exchange]

    def body(self) -> dict[str, object]:
        return {"write": self.write, "read": self.read}


class Policy(Entity):
    """Settings for whatever its pattern matches; an operator policy can only tighten limits. See `core/policy.py`."""

    def __init__(self, vhost: str, name: str, pattern: str, apply_to: str, priority: i64, definition: dict[str, object], operator: bool) -> None:
        super().__init__(OPERATOR_POLICY if operator else POLICY)
        self.vhost: str = vhost
        self.name: str = name
        self.pattern: str = pattern
        self.apply_to: str = apply_to
        self.priority: i64 = priority
        self.definition: dict[str, object] = definition
        self.operator: bool = operator

    def identity(self) -> list[object]:
        return [self.vhost, self.name]

    def body(self) -> dict[str, object]:
        return {"pattern": self.pattern, "apply_to": self.apply_to, "priority": int(self.priority), "definition": self.definition}


class Parameter(Entity):
    """A value that some component keeps under a name. An empty vhost and component: a global parameter."""

    def __init__(self, vhost: str, component: str, name: str, value: object) -> None:
        super().__init__(PARAMETER)
        self.vhost: str = vhost
        self.component: str = component
        self.name: str = name
        self.value: object = value

    def identity(self) -> list[object]:
        return [self.vhost, self.component, self.name]

    def body(self) -> dict[str, object]:
        return {"value": self.value}


class Exchange(Entity):
    """`epoch` is that of the broker it is void with, 0 for a durable one. `alternate` is what arguments and policy make of it together."""

    def __init__(self, vhost: str, name: str, type: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object],
                 epoch: i64 = 0) -> None:
        super().__init__(EXCHANGE)
        self.vhost: str = vhost
        self.name: str = name
        self.type: str = type
        self.durable: bool = durable
        self.auto_delete: bool = auto_delete
        self.internal: bool = internal
        self.arguments: dict[str, object] = arguments
        self.epoch: i64 = epoch
        self.alternate: str = ""
        self.policy: Policy | None = None
        self.outgoing: dict[bytes, Binding] = {}
        self.incoming: dict[bytes, Binding] = {}

    def identity(self) -> list[object]:
        return [self.vhost, self.name]

    def body(self) -> dict[str, object]:
        return {"type": self.type, "durable": self.durable, "auto_delete": self.auto_delete, "internal": self.internal,
                "arguments": self.arguments, "epoch": int(self.epoch)}

    def where(self) -> str:
        return in_vhost("exchange", self.name, self.vhost)

    def routing_type(self) -> str:
        """How it routes, once a message is due."""
        delayed = self.arguments.get("x-delayed-type")
        return delayed if self.type == DELAYED and isinstance(delayed, str) else self.type

    def predeclared(self) -> bool:
        return self.name in PREDECLARED


class Destination(Entity):
    """A queue or a topic: they share one namespace. `options` are the arguments', `effective` has the policies in it."""

    def __init__(self, kind: i64, id: i64, vhost: str, name: str, arguments: dict[str, object], options: QueueOptions) -> None:
        super().__init__(kind)
        self.id: i64 = id
        self.vhost: str = vhost
        self.name: str = name
        self.arguments: dict[str, object] = arguments
        self.options: QueueOptions = options
        self.effective: QueueOptions = options
        self.settled: bool = False          # do `effective`, `options` and the policies belong together?
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        self.incoming: dict[bytes, Binding] = {}

    def identity(self) -> list[object]:
        return [self.vhost, self.name]

    def where(self) -> str:
        return in_vhost("queue", self.name, self.vhost)

    def target(self) -> i64:
        """The integer that the router knows it by."""
        return self.id << 2 | (TO_QUEUE if self.kind == QUEUE else TO_TOPIC)

    def check_access(self, owner: i64, epoch: i64) -> None:
        """Raises `ResourceLocked` if another connection has it exclusively."""


class Queue(Destination):
    """`shard` is the partition it lives in. `owner` is the connection that has it exclusively (0: none), `epoch` that of the broker
    which an exclusive or transient queue is void with (0: durable)."""

    def __init__(self, id: i64, vhost: str, name: str, shard: i64, durable: bool, auto_delete: bool, owner: i64, epoch: i64,
                 arguments: dict[str, object], options: QueueOptions) -> None:
        super().__init__(QUEUE, id, vhost, name, arguments, options)
        self.shard: i64 = shard
        self.durable: bool = durable
        self.auto_delete: bool = auto_delete
        self.owner: i64 = owner
        self.epoch: i64 = epoch

    def body(self) -> dict[str, object]:
        return {"id": int(self.id), "shard": int(self.shard), "durable": self.durable, "auto_delete": self.auto_delete, "owner": int(self.owner),
                "epoch": int(self.epoch), "arguments": self.arguments, "type": QUEUE_TYPES[self.options.type]}

    def exclusive(self) -> bool:
        return self.owner != 0

    def check_access(self, owner: i64, epoch: i64) -> None:
        if self.owner != 0 and (self.owner != owner or self.epoch != epoch):
            raise locked(self)


class Topic(Destination):
    """Each of its `partitions` (ids) is a log of its own."""

    def __init__(self, id: i64, vhost: str, name: str, partitions: list[int], arguments: dict[str, object], options: QueueOptions) -> None:
        super().__init__(TOPIC, id, vhost, name, arguments, options)
        self.partitions: list[int] = partitions

    def body(self) -> dict[str, object]:
        return {"id": int(self.id), "partitions": self.partitions, "arguments": self.arguments}


class Binding(Entity):
    """From an exchange to a queue, a topic or another exchange. `target` is the router's integer of a queue or topic, -1 for an exchange."""

    def __init__(self, vhost: str, source: str, to_exchange: bool, destination: str, routing_key: str, arguments: dict[str, object]) -> None:
        super().__init__(BINDING)
        self.vhost: str = vhost
        self.source: str = source
        self.to_exchange: bool = to_exchange
        self.destination: str = destination
        self.routing_key: str = routing_key
        self.arguments: dict[str, object] = arguments
        self.target: i64 = -1
        self.key: bytes = canonical(self.identity())

    def identity(self) -> list[object]:
        return [self.vhost, self.source, self.to_exchange, self.destination, self.routing_key, self.arguments]

    def body(self) -> dict[str, object]:
        return {}


def locked(queue: Destination) -> ResourceLocked:
    return ResourceLocked(f"cannot obtain exclusive access to locked {queue.where()}. It could be originally declared on another connection "
                          "or the exclusive property value does not match that of the original declaration.")


def revive(kind: int, identity: list[Any], body: dict[str, Any]) -> Entity:
    """The entity that `identity()` and `body()` were taken from. The bytes are our own, from a verified log or checkpoint."""
    if kind == QUEUE:
        options = stored(body["arguments"], body["type"])
        return Queue(body["id"], identity[0], identity[1], body["shard"], body["durable"], body["auto_delete"], body["owner"], body["epoch"],
                     body["arguments"], options)
    if kind == TOPIC:
        options = stored(body["arguments"], "stream")
        return Topic(body["id"], identity[0], identity[1], body["partitions"], body["arguments"], options)
    if kind == BINDING:
        return Binding(identity[0], identity[1], identity[2], identity[3], identity[4], identity[5])
    if kind == EXCHANGE:
        return Exchange(identity[0], identity[1], body["type"], body["durable"], body["auto_delete"], body["internal"], body["arguments"],
                        body["epoch"])
    return revive_administrative(kind, identity, body)


def revive_administrative(kind: int, identity: list[Any], body: dict[str, Any]) -> Entity:
    if kind == VHOST:
        return Vhost(identity[0], body["description"], body["tags"], body["default_queue_type"], body["limits"])
    if kind == USER:
        return User(identity[0], body["hash"], body["algorithm"], body["tags"], body["limits"])
    if kind == PERMISSION:
        return Permission(identity[0], identity[1], body["configure"], body["write"], body["read"])
    if kind == TOPIC_PERMISSION:
        return TopicPermission(identity[0], identity[1], identity[2], body["write"], body["read"])
    if kind in (POLICY, OPERATOR_POLICY):
        return Policy(identity[0], identity[1], body["pattern"], body["apply_to"], body["priority"], body["definition"], kind == OPERATOR_POLICY)
    if kind == PARAMETER:
        return Parameter(identity[0], identity[1], identity[2], body["value"])
    raise FormatTooNew(f"metadata of kind {kind} was written by a newer version")
