"""The consistent-hash exchange: each message goes to one target, chosen by the hash of its routing key, of a header or of a property.

The binding key is the target's weight. Every target draws a number for every key, from the CRC-32C of both, and the highest one in
proportion to the weights has it (weighted rendezvous hashing). So shares follow the weights without a ring of points to balance; a target
that comes or gains weight only takes keys, one that goes or loses weight only gives keys away, and nothing else moves.

The draw depends on numbers and names that are the same on every node, never on the order in which bindings were made.
"""

from __future__ import annotations

from math import log
from typing import Final

from mypy_extensions import i64

from trilogue.routing.arguments import canonical
from trilogue.routing.exchange import Binding, Exchange, key_bytes
from trilogue.routing.hashing import crc32c, mix

WEIGHT_MAX: Final = 1_000_000
PROPERTY: Final = "property:"       # `route` finds the property `message_id` among the headers as `property:message_id`


class Slot:
    """One target with the sum of its bindings' weights."""

    def __init__(self, target: i64, seed: i64) -> None:
        self.target: i64 = target
        self.seed: i64 = seed
        self.weight: i64 = 0

    def draw(self, key: i64) -> float:
        """This target's score for a key: distributed so that the highest of several falls to each in proportion to its weight."""
        n = mix(mix(key ^ self.seed) + self.seed)
        return float(self.weight) / -log((float(n) + 0.5) / 4294967296.0)


class ConsistentHashExchange(Exchange):
    def __init__(self, name: str, number: i64, arguments: dict[str, object]) -> None:
        super().__init__(name, number)
        self.slots: dict[int, Slot] = {}
        self.bindings: dict[int, int] = {}      # target to its number of bindings: it is named even if it has no weight
        self.header: str = hashed_header(arguments)

    def varies(self) -> bool:
        return self.header != ""

    def add(self, binding: Binding) -> None:
        slot = self.slots.get(binding.target)
        if slot is None:
            slot = Slot(binding.target, seed_of(binding))
            self.slots[binding.target] = slot
        slot.weight += weight_of(binding.routing_key)
        self.bindings[binding.target] = self.bindings.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        self.slots[binding.target].weight -= weight_of(binding.routing_key)
        left = self.bindings[binding.target] - 1
        if left:
            self.bindings[binding.target] = left
        else:
            del self.bindings[binding.target]
            del self.slots[binding.target]

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        key = mix(crc32c(hashed_bytes(headers.get(self.header)) if self.header else routing_key))
        best: i64 = -1
        best_score = 0.0
        for slot in self.slots.values():
            score = slot.draw(key)
            # Equal scores are rare but must not depend on the order of the slots.
            if score > best_score or (score == best_score and score > 0.0 and slot.target < best):
                best = slot.target
                best_score = score
        if best >= 0:
            out.append(best)

    def targets(self) -> list[int]:
        return list(self.slots)


def seed_of(binding: Binding) -> i64:
    if binding.target_name:
        # The number of an exchange differs from node to node.
        return mix(crc32c(key_bytes(binding.target_name)))
    return mix(binding.target ^ (binding.target >> 32))


def weight_of(routing_key: str) -> i64:
    """The weight that a binding key asks for; none for what the catalog would refuse."""
    if not routing_key.isascii() or not routing_key.isdecimal() or len(routing_key) > 7:
        return 0
    weight: i64 = int(routing_key)
    return weight if weight <= WEIGHT_MAX else 0


def hashed_header(arguments: dict[str, object]) -> str:
    """The name under which `route` finds what is hashed; empty: the routing key is."""
    header = arguments.get("hash-header")
    if isinstance(header, str) and header:
        return header
    name = arguments.get("hash-property")
    if isinstance(name, str) and name:
        return PROPERTY + name
    return ""


def hashed_bytes(value: object) -> bytes:
    """The bytes to hash of a header's value. All messages without the header go to one target."""
    if value is None:
        return b""
    if isinstance(value, str):
        return key_bytes(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, int):
        return str(value).encode()
    return key_bytes(repr(canonical(value)))
