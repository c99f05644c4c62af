"""All named things of a cluster, and the one function that changes them: `apply`.

A change is a CBOR map: `v`, the version of the state that it was planned against; `next`, the id counter after it; `ops`, a list of
(kind, identity, body), where no body means deleted. The same changes give the same state on the leader, on a follower and at recovery. A change
planned against any other version than the present one is void: `apply` ignores it and says so, on every node alike. So whoever plans need not
lock: it plans again.

Owned by the event loop. Observers are told when a change is complete, never in the middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import cbor2
from mypy_extensions import i64

from trilogue.core.entities import (
    BINDING,
    COUNTERS,
    EXCHANGE,
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSION,
    POLICY,
    PREDECLARED,
    TOPIC_PERMISSION,
    USER,
    VHOST,
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
    in_vhost,
    revive,
)
from trilogue.core.errors import Corrupt, NotFound
from trilogue.core.observer import ADDED, CHANGED, REMOVED, CatalogObserver, Event, tell_one
from trilogue.core.policy import PolicySet, settle_destination, settle_exchange

FIRST_ID: Final = 65_536        # smaller ids belong to the broker's own partitions
KEY_DIGEST_BYTES: Final = 24
COUNTERS_KEY: Final = bytes([COUNTERS])


class Directory:
    """The state. Reading is free for all; only `apply` and `load` change it."""

    def __init__(self) -> None:
        self.version: i64 = 0               # number of changes applied
        self.access_version: i64 = 0        # rises with whatever can alter an authorisation or a limit; not stored
        self.next_id: i64 = FIRST_ID
        self.vhosts: dict[str, Vhost] = {}
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}                    # (vhost, user)
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}    # (vhost, user, exchange)
        self.parameters: dict[tuple[str, str, str], Parameter] = {}                 # (vhost, component, name)
        self.by_id: dict[int, Destination] = {}
        self.owned: dict[tuple[int, int], dict[int, Queue]] = {}                    # (epoch, owner) -> id -> exclusive queue
        self.observers: list[CatalogObserver] = []
        self.events: list[Event] = []
        self.access_touched: bool = False
        self.stale_policies: set[str] = set()           # vhosts
        self.policy_sets: dict[str, tuple[PolicySet, PolicySet]] = {}
        self.dirty: dict[bytes, bytes | None] = {}      # encoded with the change, so that a checkpoint finds it ready

    # ------------------------------------------------------------------------------------------------ reading

    def watch(self, observer: CatalogObserver) -> None:
        self.observers.append(observer)

    def vhost(self, name: str) -> Vhost:
        found = self.vhosts.get(name)
        if found is None:
            raise NotFound(f"vhost '{name}' not found")
        return found

    def find_exchange(self, vhost: str, name: str) -> Exchange | None:
        return self.vhost(vhost).exchanges.get(name)

    def exchange(self, vhost: str, name: str) -> Exchange:
        found = self.find_exchange(vhost, name)
        if found is None:
            raise NotFound("no " + in_vhost("exchange", name, vhost))
        return found

    def find_destination(self, vhost: str, name: str) -> Destination | None:
        return self.vhost(vhost).destinations.get(name)

    def destination(self, vhost: str, name: str) -> Destination:
        """A queue or a topic."""
        found = self.find_destination(vhost, name)
        if found is None:
            raise NotFound("no " + in_vhost("queue", name, vhost))
        return found

    def user(self, name: str) -> User:
        found = self.users.get(name)
        if found is None:
            raise NotFound(f"no user '{name}'")
        return found

    def queues(self) -> list[Queue]:
        return [found for found in self.by_id.values() if isinstance(found, Queue)]

    def topics(self) -> list[Topic]:
        return [found for found in self.by_id.values() if isinstance(found, Topic)]

    # ------------------------------------------------------------------------------------------------ changing

    def apply(self, change: bytes) -> bool:
        """Make one logged change; False if it is void. Deterministic: reads nothing but the change and the state."""
        decoded: dict[str, Any] = cbor2.loads(change)
        planned_at: i64 = decoded["v"]
        if planned_at != self.version:
            return False
        for op in decoded["ops"]:
            self.apply_op(op[0], op[1], op[2])
        self.next_id = decoded["next"]
        self.version += 1
        self.settle_policies()
        self.tell()
        return True

    def apply_op(self, kind: int, identity: list[Any], body: dict[str, Any] | None) -> None:
        key = item_key(kind, identity)
        if body is None:
            self.dirty[key] = None
            self.drop(kind, identity)
        else:
            self.dirty[key] = canonical([kind, identity, body])
            self.put(revive(kind, identity, body))

    def put(self, entity: Entity) -> None:
        if isinstance(entity, Destination):
            self.put_destination(entity)
        elif isinstance(entity, Binding):
            self.put_binding(entity)
        elif isinstance(entity, Exchange):
            self.put_exchange(entity)
        elif isinstance(entity, Vhost):
            self.put_vhost(entity)
        elif isinstance(entity, User):
            self.users[entity.name] = entity
            self.access_touched = True
        elif isinstance(entity, Permission):
            self.permissions[(entity.vhost, entity.user)] = entity
            self.access_touched = True
        elif isinstance(entity, TopicPermission):
            self.topic_permissions[(entity.vhost, entity.user, entity.exchange)] = entity
            self.access_touched = True
        elif isinstance(entity, Policy):
            vhost = self.vhost(entity.vhost)
            (vhost.operator_policies if entity.operator else vhost.policies)[entity.name] = entity
            self.stale_policies.add(entity.vhost)
        elif isinstance(entity, Parameter):
            self.parameters[(entity.vhost, entity.component, entity.name)] = entity
            self.events.append(Event(ADDED, entity))

    def put_vhost(self, vhost: Vhost) -> None:
        present = self.vhosts.get(vhost.name)
        self.access_touched = True
        if present is not None:
            present.description = vhost.description
            present.tags = vhost.tags
            present.default_queue_type = vhost.default_queue_type
            present.limits = vhost.limits
            self.events.append(Event(CHANGED, present))
            return
        self.vhosts[vhost.name] = vhost
        self.policy_sets[vhost.name] = (PolicySet([]), PolicySet([]))
        self.events.append(Event(ADDED, vhost))
        for name, type in PREDECLARED.items():
            exchange = Exchange(vhost.name, name, type, True, False, name == "amq.rabbitmq.trace", {})
            vhost.exchanges[name] = exchange
            self.events.append(Event(ADDED, exchange))

    def put_exchange(self, exchange: Exchange) -> None:
        self.vhost(exchange.vhost).exchanges[exchange.name] = exchange
        settle_exchange(exchange, self.policy_sets[exchange.vhost][0])
        self.events.append(Event(ADDED, exchange))

    def put_destination(self, made: Destination) -> None:
        vhost = self.vhost(made.vhost)
        sets = self.policy_sets[made.vhost]
        present = vhost.destinations.get(made.name)
        if present is not None:
            present.arguments = made.arguments
            present.options = made.options
            if isinstance(present, Topic) and isinstance(made, Topic):
                present.partitions = made.partitions
            present.settled = False
            settle_destination(present, sets[0], sets[1])
            self.events.append(Event(CHANGED, present))
            return
        vhost.destinations[made.name] = made
        self.by_id[int(made.id)] = made
        if isinstance(made, Queue) and made.exclusive():
            self.owned.setdefault((int(made.epoch), int(made.owner)), {})[int(made.id)] = made
        settle_destination(made, sets[0], sets[1])
        self.events.append(Event(ADDED, made))

    def put_binding(self, binding: Binding) -> None:
        vhost = self.vhost(binding.vhost)
        vhost.exchanges[binding.source].outgoing[binding.key] = binding
        if binding.to_exchange:
            vhost.exchanges[binding.destination].incoming[binding.key] = binding
        else:
            destination = vhost.destinations[binding.destination]
            destination.incoming[binding.key] = binding
            binding.target = destination.target()
        self.events.append(Event(ADDED, binding))

    def drop(self, kind: int, identity: list[Any]) -> None:
        if kind == VHOST:
            vhost = self.vhosts.pop(identity[0])
            self.policy_sets.pop(vhost.name)
            for name in PREDECLARED:
                self.events.append(Event(REMOVED, vhost.exchanges[name]))
            self.events.append(Event(REMOVED, vhost))
            self.access_touched = True
        elif kind == USER:
            del self.users[identity[0]]
            self.access_touched = True
        elif kind == PERMISSION:
            del self.permissions[(identity[0], identity[1])]
            self.access_touched = True
        elif kind == TOPIC_PERMISSION:
            del self.topic_permissions[(identity[0], identity[1], identity[2])]
            self.access_touched = True
        elif kind == POLICY:
            del self.vhost(identity[0]).policies[identity[1]]
            self.stale_policies.add(identity[0])
        elif kind == OPERATOR_POLICY:
            del self.vhost(identity[0]).operator_policies[identity[1]]
            self.stale_policies.add(identity[0])
        elif kind == PARAMETER:
            self.events.append(Event(REMOVED, self.parameters.pop((identity[0], identity[1], identity[2]))))
        elif kind == EXCHANGE:
            self.events.append(Event(REMOVED, self.vhost(identity[0]).exchanges.pop(identity[1])))
        elif kind == BINDING:
            self.drop_binding(self.vhost(identity[0]), identity)
        else:
            self.drop_destination(self.vhost(identity[0]).destinations.pop(identity[1]))

    def drop_binding(self, vhost: Vhost, identity: list[Any]) -> None:
        binding = vhost.exchanges[identity[1]].outgoing.pop(canonical(identity))
        if binding.to_exchange:
            del vhost.exchanges[binding.destination].incoming[binding.key]
        else:
            del vhost.destinations[binding.destination].incoming[binding.key]
        self.events.append(Event(REMOVED, binding))

    def drop_destination(self, destination: Destination) -> None:
        del self.by_id[int(destination.id)]
        if isinstance(destination, Queue) and destination.exclusive():
            owner = (int(destination.epoch), int(destination.owner))
            del self.owned[owner][int(destination.id)]
            if not self.owned[owner]:
                del self.owned[owner]
        self.events.append(Event(REMOVED, destination))

    def settle_policies(self) -> None:
        for name in sorted(self.stale_policies):
            vhost = self.vhosts.get(name)
            if vhost is None:
                continue
            sets = (PolicySet(list(vhost.policies.values())), PolicySet(list(vhost.operator_policies.values())))
            self.policy_sets[name] = sets
            for destination in vhost.destinations.values():
                if settle_destination(destination, sets[0], sets[1]):
                    self.events.append(Event(CHANGED, destination))
            for exchange in vhost.exchanges.values():
                if settle_exchange(exchange, sets[0]):
                    self.events.append(Event(CHANGED, exchange))
        self.stale_policies.clear()

    # ------------------------------------------------------------------------------------------------ telling

    def tell(self) -> None:
        events = self.events
        touched = self.access_touched
        self.events = []
        self.access_touched = False
        if touched:
            self.access_version += 1
        for observer in self.observers:
            for event in events:
                tell_one(observer, event)
            if touched:
                observer.access_changed()

    # ------------------------------------------------------------------------------------------------ checkpoints

    def dirty_items(self) -> list[tuple[bytes, bytes | None]]:
        """What changed since the last call: for each entity its present value, or None. Empty if nothing did."""
        if not self.dirty:
            return []
        items: list[tuple[bytes, bytes | None]] = [(COUNTERS_KEY, self.counters())]
        items.extend(self.dirty.items())
        self.dirty = {}
        return items

    def counters(self) -> bytes:
        return canonical([COUNTERS, [], {"version": int(self.version), "next_id": int(self.next_id)}])

    def items(self) -> list[tuple[bytes, bytes]]:
        """The whole state, in key order: what `load` makes an equal one of."""
        found: list[Entity] = []
        found.extend(self.users.values())
        found.extend(self.permissions.values())
        found.extend(self.topic_permissions.values())
        found.extend(self.parameters.values())
        found.extend(self.by_id.values())
        for vhost in self.vhosts.values():
            found.append(vhost)
            found.extend(vhost.policies.values())
            found.extend(vhost.operator_policies.values())
            for exchange in vhost.exchanges.values():
                if not exchange.predeclared():
                    found.append(exchange)
                found.extend(exchange.outgoing.values())
        items = [(COUNTERS_KEY, self.counters())]
        for entity in found:
            kind = int(entity.kind)
            items.append((item_key(kind, entity.identity()), canonical([kind, entity.identity(), entity.body()])))
        items.sort()
        return items

    def load(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Fill an empty directory from the items of a checkpoint. Observers are told as if everything had just been made."""
        assert self.version == 0 and not self.vhosts
        for key, value in sorted(items):
            try:
                decoded: list[Any] = cbor2.loads(value)
                kind: int = decoded[0]
                if kind == COUNTERS:
                    self.version = decoded[2]["version"]
                    self.next_id = decoded[2]["next_id"]
                else:
                    self.put(revive(kind, decoded[1], decoded[2]))
            except (cbor2.CBORDecodeError, KeyError, IndexError, TypeError, NotFound) as e:
                raise Corrupt(f"item {key.hex()} of the catalog's checkpoint contradicts the others: {e!r}") from None
        self.settle_policies()
        self.tell()


def item_key(kind: int, identity: list[Any]) -> bytes:
    """Short whatever the names are: an LMDB key has at most 511 bytes."""
    return bytes([kind]) + hashlib.blake2b(canonical(identity), digest_size=KEY_DIGEST_BYTES).digest()
