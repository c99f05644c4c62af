"""What an exchange is, and the kinds that look at the routing key or at nothing: direct, fanout, topic, random.

An exchange answers one question: which targets does this message match here? A target is one integer, as in `core.ports.Router`, with one
kind more: another exchange. Following those, and the alternate exchange, is the router's business. An exchange is told of every binding
exactly once, and of its removal exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from trilogue.routing.arguments import canonical_map
from trilogue.routing.hashing import mix
from trilogue.routing.trie import Bag, Trie, amqp_trie

KIND_MASK: Final = 3
TO_EXCHANGE: Final = 3          # beside TO_QUEUE, TO_TOPIC and TO_LIVE; never leaves this folder


@mypyc_attr(allow_interpreted_subclasses=True)
class Chance(ABC):
    """Where random exchanges get their luck from, so that a test or a simulation can decide it."""

    @abstractmethod
    def below(self, n: i64) -> i64:
        """A number from 0 up to, but not including, `n`."""


class SeededChance(Chance):
    """One seed, one sequence. The node passes bytes from the operating system."""

    def __init__(self, seed: bytes) -> None:
        self.seed: i64 = mix(int.from_bytes(seed[:4], "big"))
        self.count: i64 = int.from_bytes(seed[4:8], "big")

    def below(self, n: i64) -> i64:
        self.count = (self.count + 1) & 0xFFFFFFFF
        return mix(mix(self.count) ^ self.seed) % n


@mypyc_attr(allow_interpreted_subclasses=True)
class Locality(ABC):
    """Which destinations are served by this node; asked by `x-local-random`."""

    @abstractmethod
    def is_local(self, destination: int) -> bool: ...


class AllLocal(Locality):
    """A node on its own serves everything."""

    def is_local(self, destination: int) -> bool:
        return True


class Binding:
    """One binding as it is made or removed. `identity` stands for the arguments in comparisons."""

    def __init__(self, target: i64, target_name: str, routing_key: str, arguments: dict[str, object]) -> None:
        self.target: i64 = target
        self.target_name: str = target_name         # of an exchange; empty otherwise
        self.routing_key: str = routing_key
        self.arguments: dict[str, object] = arguments
        self.identity: tuple[object, ...] = canonical_map(arguments)


class Exchange(ABC):
    """Base of all kinds. `number` is its target number, unique in its vhost."""

    def __init__(self, name: str, number: i64) -> None:
        self.name: str = name
        self.number: i64 = number
        self.alternate: str = ""            # asked for by an argument; wins over the policy's
        self.policy_alternate: str = ""
        self.onward: Bag = Bag()            # the exchanges among its targets, kept by the router
        self.varies_checked: i64 = -1       # when the router last worked out `varies_beyond`
        self.varies_beyond: bool = False    # do its results, or those of an exchange behind it, vary?

    def next_alternate(self) -> str:
        return self.alternate or self.policy_alternate

    def leads_on(self) -> bool:
        """Can a message get from here to another exchange?"""
        return not self.onward.is_empty() or self.next_alternate() != ""

    def varies(self) -> bool:
        """Do results depend on more than the routing key?"""
        return False

    @abstractmethod
    def add(self, binding: Binding) -> None: ...

    @abstractmethod
    def remove(self, binding: Binding) -> None: ...

    @abstractmethod
    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        """Append all targets; a target may appear more than once."""

    @abstractmethod
    def targets(self) -> list[int]:
        """Every target that any binding names, possibly more than once."""


class DirectExchange(Exchange):
    def __init__(self, name: str, number: i64) -> None:
        super().__init__(name, number)
        self.by_key: dict[bytes, Bag] = {}

    def add(self, binding: Binding) -> None:
        key = key_bytes(binding.routing_key)
        bag = self.by_key.get(key)
        if bag is None:
            bag = Bag()
            self.by_key[key] = bag
        bag.add(binding.target)

    def remove(self, binding: Binding) -> None:
        key = key_bytes(binding.routing_key)
        bag = self.by_key[key]
        bag.remove(binding.target)
        if bag.is_empty():
            del self.by_key[key]

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        bag = self.by_key.get(routing_key)
        if bag is not None:
            bag.collect(out)

    def targets(self) -> list[int]:
        out: list[int] = []
        for bag in self.by_key.values():
            bag.collect(out)
        return out


class FanoutExchange(Exchange):
    def __init__(self, name: str, number: i64) -> None:
        super().__init__(name, number)
        self.all: Bag = Bag()

    def add(self, binding: Binding) -> None:
        self.all.add(binding.target)

    def remove(self, binding: Binding) -> None:
        self.all.remove(binding.target)

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        self.all.collect(out)

    def targets(self) -> list[int]:
        out: list[int] = []
        self.all.collect(out)
        return out


class TopicExchange(Exchange):
    def __init__(self, name: str, number: i64) -> None:
        super().__init__(name, number)
        self.trie: Trie = amqp_trie()

    def add(self, binding: Binding) -> None:
        self.trie.add(binding.routing_key, binding.target)

    def remove(self, binding: Binding) -> None:
        self.trie.remove(binding.routing_key, binding.target)

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        self.trie.match(key_text(routing_key), out)

    def targets(self) -> list[int]:
        out: list[int] = []
        for node in self.trie.nodes():
            node.collect(out)
        return out


class RandomExchange(FanoutExchange):
    """One of all targets, each with the same chance however often it is bound."""

    def __init__(self, name: str, number: i64, chance: Chance) -> None:
        super().__init__(name, number)
        self.chance: Chance = chance

    def varies(self) -> bool:
        return True

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        candidates = self.candidates()
        if candidates:
            out.append(candidates[self.chance.below(len(candidates))])

    def candidates(self) -> list[int]:
        return self.targets()


class LocalRandomExchange(RandomExchange):
    """One of the targets that this node serves itself; none if it serves none."""

    def __init__(self, name: str, number: i64, chance: Chance, locality: Locality) -> None:
        super().__init__(name, number, chance)
        self.locality: Locality = locality

    def candidates(self) -> list[int]:
        out: list[int] = []
        for target in self.targets():
            # An exchange is wherever its node is.
            if is_exchange(target) or self.locality.is_local(target):
                out.append(target)
        return out


def is_exchange(target: i64) -> bool:
    return target & KIND_MASK == TO_EXCHANGE


def key_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def key_text(key: bytes) -> str:
    """AMQP promises no encoding for keys: what is not UTF-8 is kept apart, not refused and not merged."""
    return key.decode("utf-8", "surrogateescape")
