import random

import pytest

from trilogue.routing.consistent_hash import PROPERTY, WEIGHT_MAX, ConsistentHashExchange, weight_of
from trilogue.routing.exchange import Binding

KEYS = [f"device-{n}".encode() for n in range(8_000)]


def exchange_of(weights: dict[int, int], arguments: dict[str, object] | None = None) -> ConsistentHashExchange:
    exchange = ConsistentHashExchange("x", 7, arguments or {})
    for target, weight in weights.items():
        exchange.add(Binding(target, "", str(weight), {}))
    return exchange


def place(exchange: ConsistentHashExchange, key: bytes, headers: dict[str, object] | None = None) -> int:
    out: list[int] = []
    exchange.match(key, headers or {}, out)
    assert len(out) == 1
    return out[0]


def places(exchange: ConsistentHashExchange) -> dict[bytes, int]:
    return {key: place(exchange, key) for key in KEYS}


@pytest.mark.parametrize("weights", [
    {4: 1, 8: 1}, {4: 1, 8: 2, 12: 3}, {n << 2: 1 for n in range(1, 11)}, {4: 10, 8: 30}, {n << 2: 1_000 for n in range(100_000, 100_005)},
])
def test_shares_follow_the_weights(weights: dict[int, int]) -> None:
    placed = list(places(exchange_of(weights)).values())
    for target, weight in weights.items():
        share = placed.count(target) * sum(weights.values()) / (weight * len(KEYS))
        assert 0.88 < share < 1.12


def test_a_new_target_only_takes() -> None:
    before = places(exchange_of({4: 1, 8: 1, 12: 1}))
    after = places(exchange_of({4: 1, 8: 1, 12: 1, 16: 1}))
    moved = [key for key in KEYS if before[key] != after[key]]
    assert all(after[key] == 16 for key in moved)
    assert 0.2 < len(moved) / len(KEYS) < 0.3


def test_a_target_that_goes_only_gives() -> None:
    exchange = exchange_of({4: 1, 8: 2, 12: 1})
    before = places(exchange)
    exchange.remove(Binding(8, "", "2", {}))
    after = places(exchange)
    assert all(before[key] == after[key] for key in KEYS if before[key] != 8)
    assert set(after.values()) == {4, 12}


def test_more_weight_only_takes() -> None:
    exchange = exchange_of({4: 1, 8: 1})
    before = places(exchange)
    exchange.add(Binding(8, "", "2", {}))
    after = places(exchange)
    assert all(after[key] == 8 for key in KEYS if before[key] != after[key])
    exchange.remove(Binding(8, "", "2", {}))
    assert places(exchange) == before


def test_the_order_of_binding_does_not_matter() -> None:
    weights = {n << 2: n for n in range(1, 9)}
    shuffled = list(weights.items())
    random.Random(1).shuffle(shuffled)
    assert places(exchange_of(weights)) == places(exchange_of(dict(shuffled)))


def test_exchanges_are_known_by_name() -> None:
    first, second = (ConsistentHashExchange("x", 7, {}) for _ in range(2))
    for number, name in ((11, "a"), (15, "b")):
        first.add(Binding(number, name, "1", {}))
    for number, name in ((15, "a"), (11, "b")):
        second.add(Binding(number, name, "1", {}))
    assert all((place(first, key) == 11) == (place(second, key) == 15) for key in KEYS[:500])


def test_vectors_that_must_never_change() -> None:
    """Pinned, because a change would move the messages of every running system. Both builds must agree on them."""
    exchange = exchange_of({4: 1, 8: 2, 12: 3})
    assert [place(exchange, key) for key in (b"", b"a", b"b", b"device-1", b"device-2", "grün".encode())] == [12, 12, 8, 8, 12, 8]


def test_no_weight_no_messages() -> None:
    exchange = exchange_of({})
    exchange.add(Binding(4, "", "not a weight", {}))
    out: list[int] = []
    exchange.match(b"k", {}, out)
    assert out == []
    assert exchange.targets() == [4]
    exchange.remove(Binding(4, "", "not a weight", {}))
    assert exchange.targets() == []


def test_hash_of_a_header() -> None:
    exchange = exchange_of({4: 1, 8: 1, 12: 1}, {"hash-header": "id"})
    assert exchange.varies()
    by_key = exchange_of({4: 1, 8: 1, 12: 1})
    assert not by_key.varies()
    for value in ("a", "b", "device-9"):
        assert place(exchange, b"any", {"id": value}) == place(by_key, value.encode())
        assert place(exchange, b"any", {"id": value.encode()}) == place(by_key, value.encode())
    assert place(exchange, b"any", {"id": 12}) == place(by_key, b"12")
    assert place(exchange, b"any", {"id": [1, {"a": 2.0}]}) == place(exchange, b"other", {"id": [1, {"a": 2.0}]})
    assert place(exchange, b"any", {}) == place(exchange, b"other", {"unrelated": 1}) == place(by_key, b"")


def test_hash_of_a_property() -> None:
    exchange = exchange_of({4: 1, 8: 1, 12: 1}, {"hash-property": "message_id"})
    by_key = exchange_of({4: 1, 8: 1, 12: 1})
    assert place(exchange, b"any", {PROPERTY + "message_id": "m-17", "message_id": "else"}) == place(by_key, b"m-17")


def test_what_is_a_weight() -> None:
    for good in ("1", "20", str(WEIGHT_MAX)):
        assert weight_of(good) == int(good)
    for bad in ("", "0", "-1", "1.5", "a", " 1", "²", "٣", str(WEIGHT_MAX + 1), "9" * 30):
        assert weight_of(bad) == 0
