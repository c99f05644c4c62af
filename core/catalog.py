"""The catalog: what users name, and what they may ask of it.

Every request is planned and then applied. A `plan_…` method checks the request against the present state and returns the change to be
logged (`record.Metadata`), or None if nothing has to change, as in an equivalent redeclaration; it raises what the peer did wrong, in the words that
RabbitMQ uses, and alters nothing. Whoever planned appends the record; then `apply` runs (`core/directory.py`), here as on every other node.

Not checked here: permissions (`core/access.py`), and what depends on messages or consumers (if-empty, if-unused of a queue), which the broker knows.
`owner` is a connection's id and `epoch` its broker's; both are 0 for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mypy_extensions import i64

from trilogue.core import arguments as options_of
from trilogue.core.arguments import QUEUE_TYPES, STREAM, QueueOptions, require_argument, require_field
from trilogue.core.change import Change
from trilogue.core.directory import Directory
from trilogue.core.entities import (
    EXCHANGE_TYPES,
    ROUTING_TYPES,
    Binding,
    Destination,
    Entity,
    Exchange,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
    canonical,
    check_arguments,
    check_name,
    in_vhost,
    locked,
)
from trilogue.core.errors import AccessRefused, InvalidArgument, LimitExceeded, PreconditionFailed
from trilogue.core.patterns import check_pattern, filled
from trilogue.core.policy import check as check_policy

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")
ROUTING_KEY_BYTES_MAX: Final = 65_535
WEIGHT_MAX: Final = 1_000_000
VALUE_BYTES_MAX: Final = 262_144


class Catalog(Directory):
    """The directory with the requests that may be made of it. `queues_per_vhost_max` holds where a vhost has no limit of its own (-1: none)."""

    def __init__(self, queues_per_vhost_max: i64 = -1) -> None:
        super().__init__()
        self.queues_per_vhost_max: i64 = queues_per_vhost_max

    # ------------------------------------------------------------------------------------------------ exchanges

    def plan_exchange(self, vhost: str, name: str, type: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object],
                      epoch: i64 = 0) -> bytes | None:
        """Declare. A transient exchange is void with `epoch`."""
        assert durable or epoch != 0
        refuse_default(name)
        check_name("exchange", name)
        if type not in EXCHANGE_TYPES:
            raise PreconditionFailed(f"unknown exchange type '{type}'")
        where = in_vhost("exchange", name, vhost)
        found = self.find_exchange(vhost, name)
        if found is not None:
            require_field("type", where, type, found.type)
            require_field("durable", where, durable, found.durable)
            require_field("auto_delete", where, auto_delete, found.auto_delete)
            require_field("internal", where, internal, found.internal)
            require_argument("alternate-exchange", where, arguments, found.arguments)
            return None
        refuse_reserved("exchange", name)
        check_arguments(where, arguments)
        alternate = arguments.get("alternate-exchange", "")
        if not isinstance(alternate, str):
            raise InvalidArgument(f"invalid arg 'alternate-exchange' for {where}: {{unacceptable_type,{options_of.type_name(alternate)}}}")
        if type == "x-delayed-message" and arguments.get("x-delayed-type") not in ROUTING_TYPES:
            raise InvalidArgument(f"Invalid argument, 'x-delayed-type' must be an existing exchange type (for {where})")
        change = Change(self)
        change.put(Exchange(vhost, name, type, durable, auto_delete, internal, arguments, 0 if durable else epoch))
        return change.encoded()

    def plan_delete_exchange(self, vhost: str, name: str, if_unused: bool = False) -> bytes | None:
        refuse_default(name)
        found = self.find_exchange(vhost, name)
        if name.startswith("amq."):
            raise AccessRefused(f"deletion of system {in_vhost('exchange', name, vhost)} not allowed")
        if found is None:
            return None
        if if_unused and found.outgoing:
            raise PreconditionFailed(f"{found.where()} in use")
        change = Change(self)
        change.drop_exchange(found)
        return change.encoded()

    # ------------------------------------------------------------------------------------------------ queues and topics

    def plan_queue(self, vhost: str, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: dict[str, object], shard: i64,
                   owner: i64 = 0, epoch: i64 = 0, server_named: bool = False) -> bytes | None:
        """Declare. `shard` is where a new queue will live; an exclusive or transient one is void with `epoch`. Type `stream` makes a topic."""
        assert not exclusive or owner != 0
        assert (durable and not exclusive) or epoch != 0
        check_name("queue", name)
        if not name:
            raise InvalidArgument("queue name is empty")
        if not server_named:
            refuse_reserved("queue", name)
        found = self.find_destination(vhost, name)
        default_type = self.vhost(vhost).default_queue_type
        if found is not None:
            require_same_queue(found, durable, exclusive, auto_delete, arguments, owner, epoch, default_type)
            return None
        where = in_vhost("queue", name, vhost)
        check_arguments(where, arguments)
        # A default type that cannot be exclusive or transient was not meant for queues that are.
        plain = exclusive or auto_delete or not durable
        options = options_of.parse(arguments, where, "classic" if plain else default_type)
        if options.type != options_of.CLASSIC:
            require_durable(where, durable, exclusive, auto_delete)
        self.require_room(vhost, name)
        change = Change(self)
        if options.type == STREAM:
            self.make_topic(change, vhost, name, arguments, options)
        else:
            bound = exclusive or not durable
            change.put(Queue(change.take_id(), vhost, name, shard, durable, auto_delete, owner if exclusive else 0, epoch if bound else 0,
                             arguments, options))
        return change.encoded()

    def plan_topic(self, vhost: str, name: str, partitions: i64, arguments: dict[str, object]) -> bytes | None:
        """Declare a topic; `arguments` as for a queue of type `stream`."""
        asked = dict(arguments)
        asked["x-queue-type"] = "stream"
        asked["x-partitions"] = int(partitions)
        found = self.find_destination(vhost, name)
        if isinstance(found, Topic):
            require_field("x-partitions", found.where(), int(partitions), len(found.partitions))
        return self.plan_queue(vhost, name, True, False, False, asked, 0)

    def make_topic(self, change: Change, vhost: str, name: str, arguments: dict[str, object], options: QueueOptions) -> None:
        id = change.take_id()
        partitions = [int(change.take_id()) for _ in range(max(1, int(options.partitions)))]
        change.put(Topic(id, vhost, name, partitions, arguments, options))

    def plan_partitions(self, vhost: str, name: str, count: i64) -> bytes | None:
        """Give a topic more partitions. Never fewer: offsets that were read must stay readable."""
        found = self.destination(vhost, name)
        if not isinstance(found, Topic):
            raise PreconditionFailed(f"{found.where()} is not a topic")
        if count < len(found.partitions):
            raise PreconditionFailed(f"{found.where()} has {len(found.partitions)} partitions, and cannot have fewer")
        if count > options_of.PARTITIONS_MAX:
            raise InvalidArgument(f"invalid arg 'x-partitions' for {found.where()}: {{max_value_exceeded,{count}}}")
        if count == len(found.partitions):
            return None
        change = Change(self)
        partitions = list(found.partitions)
        while len(partitions) < count:
            partitions.append(int(change.take_id()))
        arguments = dict(found.arguments)
        arguments["x-partitions"] = int(count)
        change.put(Topic(found.id, vhost, name, partitions, arguments, found.options))
        return change.encoded()

    def plan_delete_queue(self, vhost: str, name: str, owner: i64 = 0, epoch: i64 = 0) -> bytes | None:
        """Delete a queue or topic with its bindings. None if there is none: deleting is idempotent."""
        found = self.find_destination(vhost, name)
        if found is None:
            return None
        found.check_access(owner, epoch)
        change = Change(self)
        change.drop_destination(found)
        return change.encoded()

    def plan_end_connection(self, owner: i64, epoch: i64) -> bytes | None:
        """Delete the exclusive queues of a connection that ended."""
        change = Change(self)
        for queue in self.owned.get((int(epoch), int(owner)), {}).values():
            change.drop_destination(queue)
        return change.encoded()

    def plan_expire_epoch(self, epoch: i64) -> bytes | None:
        """Delete every exclusive or transient thing of a broker's ended epoch."""
        change = Change(self)
        for vhost in self.vhosts.values():
            change.drop_void(vhost, {int(epoch)}, False)
        return change.encoded()

    def plan_keep_epochs(self, live: set[int]) -> bytes | None:
        """Delete what belongs to any epoch but these: for a node that just started, or a controller that lists who is there."""
        change = Change(self)
        for vhost in self.vhosts.values():
            change.drop_void(vhost, live, True)
        return change.encoded()

    def require_room(self, vhost: str, name: str) -> None:
        found = self.vhost(vhost)
        most = found.limits.get("max-queues", int(self.queues_per_vhost_max))
        if 0 <= most <= len(found.destinations):
            raise LimitExceeded(f"cannot declare {in_vhost('queue', name, vhost)}: queue limit in vhost '{vhost}' ({most}) is reached")

    # ------------------------------------------------------------------------------------------------ bindings

    def plan_bind(self, vhost: str, source: str, destination: str, routing_key: str, arguments: dict[str, object], to_exchange: bool = False,
                  owner: i64 = 0, epoch: i64 = 0) -> bytes | None:
        binding = self.checked_binding(vhost, source, destination, routing_key, arguments, to_exchange)
        found = self.exchange(vhost, source)
        if to_exchange:
            self.exchange(vhost, destination)
        else:
            self.destination(vhost, destination).check_access(owner, epoch)
        if binding.key in found.outgoing:
            return None
        check_binding(found, binding)
        change = Change(self)
        change.put(binding)
        return change.encoded()

    def plan_unbind(self, vhost: str, source: str, destination: str, routing_key: str, arguments: dict[str, object], to_exchange: bool = False,
                    owner: i64 = 0, epoch: i64 = 0) -> bytes | None:
        """None if there is no such binding, or neither end of it: unbinding is idempotent."""
        wanted = self.checked_binding(vhost, source, destination, routing_key, arguments, to_exchange)
        found = self.find_exchange(vhost, source)
        binding = None if found is None else found.outgoing.get(wanted.key)
        if binding is None:
            return None
        if not to_exchange:
            self.destination(vhost, destination).check_access(owner, epoch)
        change = Change(self)
        change.drop_binding(binding)
        return change.encoded()

    def checked_binding(self, vhost: str, source: str, destination: str, routing_key: str, arguments: dict[str, object],
                        to_exchange: bool) -> Binding:
        refuse_default(source)
        if to_exchange:
            refuse_default(destination)
        check_name("exchange", source)
        check_name("exchange" if to_exchange else "queue", destination)
        if len(canonical(routing_key)) > ROUTING_KEY_BYTES_MAX:
            raise InvalidArgument(f"a routing key is longer than {ROUTING_KEY_BYTES_MAX} bytes")
        check_arguments(f"a binding from {in_vhost('exchange', source, vhost)}", arguments)
        return Binding(vhost, source, to_exchange, destination, routing_key, arguments)

    # ------------------------------------------------------------------------------------------------ vhosts

    def plan_vhost(self, name: str, description: str = "", tags: list[str] | None = None, default_queue_type: str = "classic") -> bytes | None:
        """Make a vhost, or alter its description, tags and default queue type."""
        check_name("vhost", name)
        if not name:
            raise InvalidArgument("vhost name is empty")
        if default_queue_type not in QUEUE_TYPES:
            raise InvalidArgument(f"invalid default queue type '{default_queue_type}' of vhost '{name}'")
        found = self.vhosts.get(name)
        made = Vhost(name, description, tags, default_queue_type, {} if found is None else found.limits)
        return self.planned(made, found)

    def plan_vhost_limits(self, name: str, limits: Mapping[str, object]) -> bytes | None:
        """Replace all limits of a vhost; negative values lift one."""
        found = self.vhost(name)
        checked = checked_limits(limits, VHOST_LIMITS)
        return self.planned(Vhost(name, found.description, found.tags, found.default_queue_type, checked), found)

    def plan_delete_vhost(self, name: str) -> bytes | None:
        found = self.vhosts.get(name)
        if found is None:
            return None
        change = Change(self)
        for exchange in found.exchanges.values():
            for binding in exchange.outgoing.values():
                change.drop(binding)
        for destination in found.destinations.values():
            change.drop(destination)
        for exchange in found.exchanges.values():
            if not exchange.predeclared():
                change.drop(exchange)
        for policy in [*found.policies.values(), *found.operator_policies.values()]:
            change.drop(policy)
        for permission in self.permissions.values():
            if permission.vhost == name:
                change.drop(permission)
        for topic_permission in self.topic_permissions.values():
            if topic_permission.vhost == name:
                change.drop(topic_permission)
        for parameter in self.parameters.values():
            if parameter.vhost == name:
                change.drop(parameter)
        change.drop(found)
        return change.encoded()

    # ------------------------------------------------------------------------------------------------ users and permissions

    def plan_user(self, name: str, password_hash: str, algorithm: str, tags: list[str]) -> bytes | None:
        """Make or alter a user; the hash comes from `core/passwords.py`."""
        check_name("user", name)
        if not name:
            raise InvalidArgument("user name is empty")
        check_value(f"user '{name}'", [password_hash, algorithm, tags])
        found = self.users.get(name)
        return self.planned(User(name, password_hash, algorithm, tags, {} if found is None else found.limits), found)

    def plan_user_limits(self, name: str, limits: Mapping[str, object]) -> bytes | None:
        found = self.user(name)
        return self.planned(User(name, found.password_hash, found.algorithm, found.tags, checked_limits(limits, USER_LIMITS)), found)

    def plan_delete_user(self, name: str) -> bytes | None:
        found = self.users.get(name)
        if found is None:
            return None
        change = Change(self)
        for permission in self.permissions.values():
            if permission.user == name:
                change.drop(permission)
        for topic_permission in self.topic_permissions.values():
            if topic_permission.user == name:
                change.drop(topic_permission)
        change.drop(found)
        return change.encoded()

    def plan_permission(self, vhost: str, user: str, configure: str, write: str, read: str) -> bytes | None:
        self.vhost(vhost)
        self.user(user)
        for pattern in (configure, write, read):
            check_pattern(pattern)
        return self.planned(Permission(vhost, user, configure, write, read), self.permissions.get((vhost, user)))

    def plan_delete_permission(self, vhost: str, user: str) -> bytes | None:
        return self.dropped(self.permissions.get((vhost, user)))

    def plan_topic_permission(self, vhost: str, user: str, exchange: str, write: str, read: str) -> bytes | None:
        """Patterns may hold {username}, {vhost}, {client_id}, %u and %c, which stand for themselves, letter by letter."""
        self.vhost(vhost)
        self.user(user)
        check_name("exchange", exchange)
        for pattern in (write, read):
            check_pattern(filled(pattern, "u", "v", "c"))
        return self.planned(TopicPermission(vhost, user, exchange, write, read), self.topic_permissions.get((vhost, user, exchange)))

    def plan_delete_topic_permission(self, vhost: str, user: str, exchange: str) -> bytes | None:
        return self.dropped(self.topic_permissions.get((vhost, user, exchange)))

    # ------------------------------------------------------------------------------------------------ policies and parameters

    def plan_policy(self, vhost: str, name: str, pattern: str, definition: dict[str, object], apply_to: str = "all", priority: i64 = 0,
                    operator: bool = False) -> bytes | None:
        check_name("policy", name)
        check_value(f"policy '{name}'", definition)
        found = self.vhost(vhost)
        policy = Policy(vhost, name, pattern, apply_to, priority, definition, operator)
        check_policy(policy)
        return self.planned(policy, (found.operator_policies if operator else found.policies).get(name))

    def plan_delete_policy(self, vhost: str, name: str, operator: bool = False) -> bytes | None:
        found = self.vhost(vhost)
        return self.dropped((found.operator_policies if operator else found.policies).get(name))

    def plan_parameter(self, vhost: str, component: str, name: str, value: object) -> bytes | None:
        """An empty vhost and component: a global parameter."""
        if vhost or component:
            self.vhost(vhost)
        check_name("component", component)
        check_name("parameter", name)
        check_value(f"parameter '{name}'", value)
        return self.planned(Parameter(vhost, component, name, value), self.parameters.get((vhost, component, name)))

    def plan_delete_parameter(self, vhost: str, component: str, name: str) -> bytes | None:
        return self.dropped(self.parameters.get((vhost, component, name)))

    # ------------------------------------------------------------------------------------------------ one entity

    def planned(self, wanted: Entity, present: Entity | None) -> bytes | None:
        if present is not None and canonical(present.body()) == canonical(wanted.body()):
            return None
        change = Change(self)
        change.put(wanted)
        return change.encoded()

    def dropped(self, present: Entity | None) -> bytes | None:
        change = Change(self)
        if present is not None:
            change.drop(present)
        return change.encoded()


# ------------------------------------------------------------------------------------------------ checks

def refuse_default(exchange: str) -> None:
    if not exchange:
        raise AccessRefused("operation not permitted on the default exchange")


def refuse_reserved(what: str, name: str) -> None:
    if name.startswith("amq."):
        raise AccessRefused(f"{what} name '{name}' contains reserved prefix 'amq.*'")


def require_same_queue(found: Destination, durable: bool, exclusive: bool, auto_delete: bool, arguments: dict[str, object], owner: i64, epoch: i64,
                       default_type: str) -> None:
    """In RabbitMQ's order: who owns it, then its properties, then its arguments."""
    where = found.where()
    is_durable = True
    is_auto_delete = False
    is_exclusive = False
    if isinstance(found, Queue):
        is_durable = found.durable
        is_auto_delete = found.auto_delete
        is_exclusive = found.exclusive()
    found.check_access(owner, epoch)
    if exclusive != is_exclusive:
        raise locked(found)
    require_field("durable", where, durable, is_durable)
    require_field("auto_delete", where, auto_delete, is_auto_delete)
    current_type = QUEUE_TYPES[found.options.type]
    plain = exclusive or auto_delete or not durable
    options_of.require_equivalent(where, arguments, found.arguments, current_type, "classic" if plain else default_type)


def require_durable(where: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    """Replicated types have no transient form."""
    if not durable:
        raise InvalidArgument(f"invalid property 'non-durable' for {where}")
    if exclusive:
        raise InvalidArgument(f"invalid property 'exclusive-owner' for {where}")
    if auto_delete:
        raise InvalidArgument(f"invalid property 'auto-delete' for {where}")


def check_binding(source: Exchange, binding: Binding) -> None:
    """What the type of the source exchange asks of a binding."""
    type = source.routing_type()
    if type == "headers":
        match = binding.arguments.get("x-match", "all")
        if match not in ("all", "any", "all-with-x", "any-with-x"):
            raise PreconditionFailed(f"Invalid x-match field value {match!r}; expected all, any, all-with-x, or any-with-x")
    elif type == "x-consistent-hash":
        weight = binding.routing_key
        if not (weight.isascii() and weight.isdigit()) or len(weight) > 7 or not 1 <= int(weight) <= WEIGHT_MAX:
            raise PreconditionFailed(f"The binding key must be a positive integer of at most {WEIGHT_MAX}, and not '{weight[:100]}', "
                                     f"for {source.where()}")


def checked_limits(limits: Mapping[str, object], known: tuple[str, ...]) -> dict[str, int]:
    checked: dict[str, int] = {}
    for key, value in limits.items():
        if key not in known:
            raise InvalidArgument(f"Unrecognised terms in limits: '{key}'")
        if isinstance(value, bool) or not isinstance(value, int) or not -1 << 31 <= value < 1 << 31:
            raise InvalidArgument(f"limit '{key}' must be a whole number of at most 31 bits")
        checked[key] = value
    return checked


def check_value(what: str, value: object) -> None:
    if len(canonical(value)) > VALUE_BYTES_MAX:
        raise InvalidArgument(f"{what} is longer than {VALUE_BYTES_MAX} bytes")
