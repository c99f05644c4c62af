from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.routing.exchange import (
    AllLocal,
    Binding,
    Chance,
    DirectExchange,
    Exchange,
    FanoutExchange,
    Locality,
    LocalRandomExchange,
    RandomExchange,
    SeededChance,
    TopicExchange,
    key_bytes,
    key_text,
)


class Next(Chance):
    """Chance that goes round."""

    def __init__(self) -> None:
        self.n = 0

    def below(self, n: int) -> int:
        self.n += 1
        return self.n % n


class Odd(Locality):
    def is_local(self, destination: int) -> bool:
        return bool(destination >> 2 & 1)


def binding(target: int, key: str = "", arguments: dict[str, object] | None = None) -> Binding:
    return Binding(target, "", key, arguments or {})


def found(exchange: Exchange, key: bytes = b"") -> list[int]:
    out: list[int] = []
    exchange.match(key, {}, out)
    return out


KINDS: list[Callable[[], Exchange]] = [
    lambda: DirectExchange("x", 7),
    lambda: FanoutExchange("x", 7),
    lambda: TopicExchange("x", 7),
    lambda: RandomExchange("x", 7, Next()),
    lambda: LocalRandomExchange("x", 7, Next(), AllLocal()),
]


def test_direct_compares_whole_keys() -> None:
    exchange = DirectExchange("x", 7)
    exchange.add(binding(4, "a"))
    exchange.add(binding(8, "a"))
    exchange.add(binding(8, "a.b"))
    assert found(exchange, b"a") == [4, 8]
    assert found(exchange, b"a.b") == [8]
    assert found(exchange, b"a.") == []
    exchange.remove(binding(8, "a.b"))
    assert found(exchange, b"a.b") == []


def test_fanout_ignores_keys() -> None:
    exchange = FanoutExchange("x", 7)
    exchange.add(binding(4, "a"))
    exchange.add(binding(4, "b"))
    exchange.add(binding(8, "b"))
    assert found(exchange, b"whatever") == [4, 8]
    exchange.remove(binding(4, "a"))
    assert found(exchange) == [4, 8]
    exchange.remove(binding(4, "b"))
    assert found(exchange) == [8]


def test_topic_uses_patterns() -> None:
    exchange = TopicExchange("x", 7)
    exchange.add(binding(4, "a.*"))
    exchange.add(binding(8, "#"))
    assert sorted(found(exchange, b"a.b")) == [4, 8]
    assert found(exchange, b"a") == [8]
    assert sorted(exchange.targets()) == [4, 8]


@pytest.mark.parametrize("make", KINDS)
def test_an_exchange_without_bindings_matches_nothing(make: Callable[[], Exchange]) -> None:
    exchange = make()
    assert found(exchange, b"a") == []
    exchange.add(binding(4, "a"))
    assert found(exchange, b"a") == [4]
    assert exchange.targets() == [4]
    exchange.remove(binding(4, "a"))
    assert found(exchange, b"a") == []
    assert exchange.targets() == []


@pytest.mark.parametrize("make", KINDS)
def test_bindings_that_differ_in_arguments_only_are_two(make: Callable[[], Exchange]) -> None:
    exchange = make()
    exchange.add(binding(4, "a"))
    exchange.add(binding(4, "a", {"n": 1}))
    exchange.remove(binding(4, "a"))
    assert found(exchange, b"a") == [4]
    exchange.remove(binding(4, "a", {"n": 1}))
    assert found(exchange, b"a") == []


def test_random_takes_one_and_each_in_turn_if_chance_says_so() -> None:
    exchange = RandomExchange("x", 7, Next())
    for target in (4, 8, 12):
        exchange.add(binding(target))
    assert [found(exchange) for _ in range(4)] == [[8], [12], [4], [8]]
    assert exchange.varies()


def test_local_random_takes_local_ones_only() -> None:
    exchange = LocalRandomExchange("x", 7, Next(), Odd())
    exchange.add(binding(2 << 2))
    assert found(exchange) == []
    exchange.add(binding(3 << 2))
    exchange.add(binding(5 << 2))
    assert {found(exchange)[0] for _ in range(10)} == {3 << 2, 5 << 2}


def test_seeded_chance_is_fair_and_repeatable() -> None:
    first, second, other = SeededChance(b"12345678"), SeededChance(b"12345678"), SeededChance(b"87654321")
    draws = [first.below(5) for _ in range(5_000)]
    assert draws == [second.below(5) for _ in range(5_000)]
    assert draws != [other.below(5) for _ in range(5_000)]
    assert all(850 < draws.count(n) < 1_150 for n in range(5))


@given(st.binary(max_size=20))
def test_any_bytes_are_a_key(key: bytes) -> None:
    assert key_bytes(key_text(key)) == key
