import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.routing.exchange import Binding
from trilogue.routing.headers import HeadersExchange

names = st.sampled_from(["a", "b", "x-c", "x-d"])
values = st.sampled_from([None, 0, 1, True, "1", "", [1], [1, {"k": 1}]])
tables = st.dictionaries(names, values, max_size=3)
modes = st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])


def matches(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    """RabbitMQ's rules, one sentence at a time."""
    mode = str(arguments.get("x-match", "all"))
    results = []
    for name, wanted in arguments.items():
        if name == "x-match" or (name.startswith("x-") and not mode.endswith("-with-x")):
            continue
        there = name in headers
        results.append(there and (wanted is None or (type(wanted) is type(headers[name]) and wanted == headers[name])))
    return all(results) if mode.startswith("all") else any(results)


def with_mode(mode: str | None, table: dict[str, object]) -> dict[str, object]:
    return table if mode is None else {**table, "x-match": mode}


def found(exchange: HeadersExchange, headers: dict[str, object]) -> list[int]:
    out: list[int] = []
    exchange.match(b"ignored", headers, out)
    return sorted(set(out))


@given(st.lists(st.builds(with_mode, modes, tables), max_size=6), tables)
@settings(max_examples=400)
def test_matches_by_definition(bindings: list[dict[str, object]], headers: dict[str, object]) -> None:
    exchange = HeadersExchange("x", 7)
    for number, arguments in enumerate(bindings):
        exchange.add(Binding(number << 2, "", "", arguments))
    assert found(exchange, headers) == [n << 2 for n, arguments in enumerate(bindings) if matches(arguments, headers)]
    for number, arguments in enumerate(bindings[:3]):
        exchange.remove(Binding(number << 2, "", "", arguments))
    assert found(exchange, headers) == [n << 2 for n, arguments in enumerate(bindings) if n >= 3 and matches(arguments, headers)]
    assert sorted(exchange.targets()) == [n << 2 for n in range(3, len(bindings))]


@pytest.mark.parametrize(("arguments", "headers", "expected"), [
    ({}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"a": None}, {"a": "whatever"}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {"b": 1}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": "1"}, False),
    ({"x-a": 1}, {}, True),
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
    ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "all-with-x", "x-a": 1}, {}, False),
    ({"a": {"k": [1, 2]}}, {"a": {"k": [1, 2]}}, True),
    ({"a": {"k": [1, 2]}}, {"a": {"k": [2, 1]}}, False),
])
def test_cases(arguments: dict[str, object], headers: dict[str, object], expected: bool) -> None:
    exchange = HeadersExchange("x", 7)
    exchange.add(Binding(4, "", "", arguments))
    assert found(exchange, headers) == ([4] if expected else [])


def test_nothing_is_left_after_removal() -> None:
    exchange = HeadersExchange("x", 7)
    bindings = [Binding(4, "", "", table) for table in ({}, {"a": 1, "b": None}, {"x-match": "any", "a": 1, "b": None})]
    for binding in bindings:
        exchange.add(binding)
    for binding in bindings:
        exchange.remove(binding)
    assert not exchange.rules
    assert not exchange.filed
    assert not exchange.always


def test_a_mode_that_does_not_exist_is_the_strictest() -> None:
    for mode in ("some", 1, None):
        exchange = HeadersExchange("x", 7)
        exchange.add(Binding(4, "", "", {"x-match": mode, "a": 1, "b": 2}))
        assert found(exchange, {"a": 1}) == []
        assert found(exchange, {"a": 1, "b": 2}) == [4]
