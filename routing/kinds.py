"""The kinds of exchanges by name, and how each is made."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import InvalidArgument
from trilogue.routing.consistent_hash import ConsistentHashExchange
from trilogue.routing.exchange import Chance, DirectExchange, Exchange, FanoutExchange, Locality, LocalRandomExchange, RandomExchange, TopicExchange
from trilogue.routing.headers import HeadersExchange

KINDS: Final = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random", "x-local-random")


def make_exchange(kind: str, name: str, number: i64, arguments: dict[str, object], chance: Chance, locality: Locality) -> Exchange:
    exchange = _of_kind(kind, name, number, arguments, chance, locality)
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str):
        exchange.alternate = alternate
    return exchange


def _of_kind(kind: str, name: str, number: i64, arguments: dict[str, object], chance: Chance, locality: Locality) -> Exchange:
    if kind == "direct":
        return DirectExchange(name, number)
    if kind == "fanout":
        return FanoutExchange(name, number)
    if kind == "topic":
        return TopicExchange(name, number)
    if kind == "headers":
        return HeadersExchange(name, number)
    if kind == "x-consistent-hash":
        return ConsistentHashExchange(name, number, arguments)
    if kind == "x-random":
        return RandomExchange(name, number, chance)
    if kind == "x-local-random":
        return LocalRandomExchange(name, number, chance, locality)
    raise InvalidArgument(f"no exchange is of kind {kind!r}; there are {', '.join(KINDS)}")
