"""The router against its contract in core/ports.py, and against a model that keeps a plain list of bindings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.core.errors import InvalidArgument, NotFound
from trilogue.core.ports import TO_LIVE, TO_QUEUE, TO_TOPIC, Router
from trilogue.routing.exchange import Chance, Locality
from trilogue.routing.router import BindingRouter, each_once


class First(Chance):
    def below(self, n: int) -> int:
        return 0


class Nowhere(Locality):
    def is_local(self, destination: int) -> bool:
        return False


def queue(n: int) -> int:
    return n << 2 | TO_QUEUE


def make(*exchanges: tuple[str, str]) -> BindingRouter:
    router = BindingRouter(First())
    router.add_vhost("/")
    for name, kind in exchanges:
        router.add_exchange("/", name, kind, {})
    return router


def route(router: Router, exchange: str, key: str = "", headers: dict[str, object] | None = None) -> list[int]:
    return router.route("/", exchange, key.encode(), headers or {})


# ------------------------------------------------------------------------------------------------ names

def test_default_exchange_delivers_by_name() -> None:
    router = make()
    router.add_destination("/", "q", queue(1))
    router.add_destination("/", "grün", 2 << 2 | TO_TOPIC)
    assert route(router, "", "q") == [queue(1)]
    assert route(router, "", "grün") == [2 << 2 | TO_TOPIC]
    assert route(router, "", "other") == []
    router.remove_destination("/", "q", queue(1))
    assert route(router, "", "q") == []


def test_vhosts_are_apart() -> None:
    router = make(("x", "fanout"))
    router.add_vhost("other")
    router.add_exchange("other", "x", "fanout", {})
    router.bind("/", "x", queue(1), "", {})
    router.subscribe("/", "#", queue(1))
    assert router.route("other", "x", b"", {}) == []
    assert router.route_topic("other", b"a") == []
    router.remove_vhost("/")
    with pytest.raises(NotFound):
        router.route("/", "x", b"", {})
    assert router.route("other", "x", b"", {}) == []


def test_what_does_not_exist_is_not_found() -> None:
    router = make()
    with pytest.raises(NotFound):
        route(router, "missing")
    with pytest.raises(NotFound):
        router.reads_headers("/", "missing")
    with pytest.raises(NotFound):
        router.bind("/", "missing", queue(1), "", {})
    with pytest.raises(NotFound):
        router.route("nowhere", "", b"", {})
    with pytest.raises(InvalidArgument):
        router.add_exchange("/", "x", "x-nonsense", {})


def test_what_is_there_already_stays_as_it_is() -> None:
    router = make(("x", "fanout"))
    router.bind("/", "x", queue(1), "", {})
    router.add_exchange("/", "x", "fanout", {})
    router.add_vhost("/")
    assert route(router, "x") == [queue(1)]


def test_the_default_exchange_cannot_be_removed() -> None:
    router = make()
    router.add_destination("/", "q", queue(1))
    router.remove_exchange("/", "")
    assert route(router, "", "q") == [queue(1)]


# ------------------------------------------------------------------------------------------------ bindings

def test_binding_twice_is_binding_once() -> None:
    router = make(("x", "topic"))
    for _ in range(2):
        router.bind("/", "x", queue(1), "a.#", {"n": [1, {"m": 2}]})
    assert route(router, "x", "a.b") == [queue(1)]
    router.unbind("/", "x", queue(1), "a.#", {"n": [1, {"m": 2}]})
    assert route(router, "x", "a.b") == []


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-random", "x-consistent-hash"])
def test_unbind_is_exact(kind: str) -> None:
    router = make(("x", kind))
    router.bind("/", "x", queue(1), "1", {"x-n": 1})
    router.unbind("/", "x", queue(1), "1", {})
    router.unbind("/", "x", queue(1), "1", {"x-n": True})
    router.unbind("/", "x", queue(1), "2", {"x-n": 1})
    router.unbind("/", "x", queue(2), "1", {"x-n": 1})
    assert route(router, "x", "1") == [queue(1)]
    router.unbind("/", "x", queue(1), "1", {"x-n": 1})
    assert route(router, "x", "1") == []


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-random", "x-consistent-hash"])
def test_a_destination_takes_all_its_bindings_with_it(kind: str) -> None:
    router = make(("x", kind), ("y", "direct"))
    router.add_destination("/", "q", queue(1))
    for number in (1, 2):
        router.bind("/", "x", queue(number), "1", {})
        router.bind("/", "x", queue(number), "1", {"x-n": number})
        router.bind("/", "y", queue(number), "k", {})
        router.subscribe("/", "a/+", queue(number))
    router.remove_destination("/", "q", queue(1))
    assert route(router, "x", "1") == [queue(2)]
    assert route(router, "y", "k") == [queue(2)]
    assert router.route_topic("/", b"a/b") == [queue(2)]
    router.bind("/", "y", queue(1), "k", {})
    assert route(router, "y", "k") == [queue(1), queue(2)]


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-random", "x-consistent-hash"])
def test_an_exchange_takes_all_its_bindings_with_it(kind: str) -> None:
    router = make(("x", kind), ("up", "fanout"), ("down", "fanout"))
    router.bind("/", "x", queue(1), "1", {})
    router.bind("/", "down", queue(2), "", {})
    router.bind_exchange("/", "up", "x", "", {})
    router.bind_exchange("/", "x", "down", "1", {"x-n": 1})
    router.bind_exchange("/", "x", "x", "1", {})
    router.remove_exchange("/", "x")
    assert route(router, "up") == []
    router.add_exchange("/", "x", kind, {})
    assert route(router, "x", "1") == []
    assert route(router, "up") == []
    router.bind("/", "x", queue(1), "1", {})
    assert route(router, "x", "1") == [queue(1)]
    home = router.vhosts["/"]
    assert set(home.inbound) == {queue(1), queue(2)}


def test_results_name_each_destination_once_and_in_order() -> None:
    router = make(("x", "topic"))
    for number in (5, 3, 9):
        for pattern in ("#", "a.*", "a.b"):
            router.bind("/", "x", queue(number), pattern, {})
    assert route(router, "x", "a.b") == [queue(3), queue(5), queue(9)]


@given(st.lists(st.integers(0, 20)))
def test_each_once(numbers: list[int]) -> None:
    assert each_once(list(numbers)) == sorted(set(numbers))


def test_keys_that_are_not_text_can_be_routed() -> None:
    router = make(("d", "direct"), ("t", "topic"))
    key = b"a.\xff".decode("utf-8", "surrogateescape")
    router.bind("/", "d", queue(1), key, {})
    router.bind("/", "t", queue(1), key, {})
    assert router.route("/", "d", b"a.\xff", {}) == [queue(1)]
    assert router.route("/", "t", b"a.\xff", {}) == [queue(1)]
    assert router.route("/", "t", b"a.\xfe", {}) == []


def test_local_random_asks_where_a_destination_is() -> None:
    router = BindingRouter(First(), Nowhere())
    router.add_vhost("/")
    router.add_exchange("/", "x", "x-local-random", {})
    router.bind("/", "x", queue(1), "", {})
    assert route(router, "x") == []


# ------------------------------------------------------------------------------------------------ exchanges behind exchanges

def test_bindings_between_exchanges_are_followed_with_the_same_key() -> None:
    router = make(("a", "topic"), ("b", "direct"), ("c", "headers"))
    router.bind_exchange("/", "a", "b", "x.#", {})
    router.bind_exchange("/", "b", "c", "x.y", {})
    router.bind("/", "c", queue(1), "", {"h": 1})
    router.bind("/", "b", queue(2), "x.y", {})
    assert route(router, "a", "x.y", {"h": 1}) == [queue(1), queue(2)]
    assert route(router, "a", "x.y") == [queue(2)]
    assert route(router, "a", "x.z") == []
    router.unbind_exchange("/", "b", "c", "x.y", {})
    assert route(router, "a", "x.y", {"h": 1}) == [queue(2)]


def test_cycles_of_exchanges_end() -> None:
    names = [f"x{n}" for n in range(6)]
    router = make(*((name, "fanout") for name in names))
    for number, name in enumerate(names):
        router.bind("/", name, queue(number), "", {})
        for other in names:
            router.bind_exchange("/", name, other, "", {})
    assert route(router, "x3") == [queue(n) for n in range(6)]
    assert not router.reads_headers("/", "x3")


def test_a_diamond_delivers_once() -> None:
    router = make(("top", "fanout"), ("left", "fanout"), ("right", "fanout"))
    for side in ("left", "right"):
        router.bind_exchange("/", "top", side, "", {})
        router.bind("/", side, queue(1), "", {})
    assert route(router, "top") == [queue(1)]


# ------------------------------------------------------------------------------------------------ alternates

def with_alternates(chain: dict[str, str]) -> BindingRouter:
    router = make()
    for name, alternate in chain.items():
        router.add_exchange("/", name, "direct", {"alternate-exchange": alternate} if alternate else {})
    return router


def test_the_alternate_gets_what_matches_nothing() -> None:
    router = with_alternates({"a": "b", "b": ""})
    router.bind("/", "a", queue(1), "k", {})
    router.bind("/", "b", queue(2), "k", {})
    router.bind("/", "b", queue(2), "other", {})
    assert route(router, "a", "k") == [queue(1)]
    assert route(router, "a", "other") == [queue(2)]


def test_chains_of_alternates_and_their_cycles_end() -> None:
    router = with_alternates({"a": "b", "b": "c", "c": "a"})
    assert route(router, "a", "k") == []
    router.bind("/", "c", queue(3), "k", {})
    assert route(router, "a", "k") == [queue(3)]
    self_reference = with_alternates({"s": "s"})
    assert route(self_reference, "s", "k") == []


def test_a_match_that_leads_nowhere_is_still_a_match() -> None:
    router = with_alternates({"a": "b", "b": "", "empty": ""})
    router.bind("/", "b", queue(1), "k", {})
    router.bind_exchange("/", "a", "empty", "k", {})
    assert route(router, "a", "k") == []


def test_alternates_of_exchanges_behind_exchanges_count() -> None:
    router = with_alternates({"a": "", "b": "c", "c": ""})
    router.bind_exchange("/", "a", "b", "k", {})
    router.bind("/", "c", queue(1), "k", {})
    assert route(router, "a", "k") == [queue(1)]


def test_an_alternate_that_does_not_exist_is_none_until_it_does() -> None:
    router = with_alternates({"a": "later"})
    assert route(router, "a", "k") == []
    router.add_exchange("/", "later", "fanout", {})
    router.bind("/", "later", queue(1), "", {})
    assert route(router, "a", "k") == [queue(1)]


def test_a_policy_sets_the_alternate_unless_an_argument_does() -> None:
    router = with_alternates({"a": "b", "b": "", "c": "", "d": ""})
    router.bind("/", "b", queue(1), "k", {})
    router.bind("/", "c", queue(2), "k", {})
    router.set_alternate("/", "a", "c")
    router.set_alternate("/", "d", "c")
    assert route(router, "a", "k") == [queue(1)]
    assert route(router, "d", "k") == [queue(2)]
    router.set_alternate("/", "d", "")
    assert route(router, "d", "k") == []


# ------------------------------------------------------------------------------------------------ subscriptions

def test_subscriptions_match_original_topics() -> None:
    router = make()
    router.subscribe("/", "a/+", 1 << 2 | TO_LIVE)
    router.subscribe("/", "a/b.c", 2 << 2 | TO_LIVE)
    router.subscribe("/", "#", queue(3))
    assert router.route_topic("/", b"a/b.c") == [1 << 2 | TO_LIVE, 2 << 2 | TO_LIVE, queue(3)]
    assert router.route_topic("/", b"a/b/c") == [queue(3)]
    assert router.route_topic("/", b"$SYS/x") == []


def test_subscribing_twice_is_subscribing_once() -> None:
    router = make()
    for destination in (queue(1), 1 << 2 | TO_LIVE):
        router.subscribe("/", "a", destination)
        router.subscribe("/", "a", destination)
        router.unsubscribe("/", "a", destination)
        router.unsubscribe("/", "a", destination)
    assert router.route_topic("/", b"a") == []
    assert not router.vhosts["/"].subscribed


def test_overlapping_subscriptions_give_one_destination() -> None:
    router = make()
    for topic_filter in ("a/#", "a/+", "a/b"):
        router.subscribe("/", topic_filter, queue(1))
    assert router.route_topic("/", b"a/b") == [queue(1)]
    router.unsubscribe("/", "a/#", queue(1))
    assert router.route_topic("/", b"a/b") == [queue(1)]
    assert router.route_topic("/", b"a") == []


# ------------------------------------------------------------------------------------------------ what can be cached

@pytest.mark.parametrize(("kind", "arguments", "varies"), [
    ("direct", {}, False), ("fanout", {}, False), ("topic", {}, False), ("headers", {}, True), ("x-random", {}, True), ("x-local-random", {}, True),
    ("x-consistent-hash", {}, False), ("x-consistent-hash", {"hash-header": "h"}, True), ("x-consistent-hash", {"hash-property": "timestamp"}, True),
])
def test_what_depends_on_more_than_the_key(kind: str, arguments: dict[str, object], varies: bool) -> None:
    router = make(("front", "topic"), ("other", "direct"))
    router.add_exchange("/", "x", kind, arguments)
    assert router.reads_headers("/", "x") == varies
    assert not router.reads_headers("/", "front")
    router.bind_exchange("/", "front", "other", "a", {})
    assert not router.reads_headers("/", "front")
    router.bind_exchange("/", "other", "x", "1", {})
    assert router.reads_headers("/", "front") == varies
    router.unbind_exchange("/", "other", "x", "1", {})
    assert not router.reads_headers("/", "front")
    router.set_alternate("/", "other", "x")
    assert router.reads_headers("/", "front") == varies
    router.bind_exchange("/", "other", "x", "1", {})
    router.remove_exchange("/", "x")
    assert not router.reads_headers("/", "front")


def test_every_change_of_a_result_raises_the_version() -> None:
    router = make(("x", "topic"), ("y", "fanout"))
    seen = [router.version]
    router.add_destination("/", "q", queue(1))
    seen.append(router.version)
    router.bind("/", "x", queue(1), "#", {})
    seen.append(router.version)
    router.bind_exchange("/", "x", "y", "#", {})
    seen.append(router.version)
    router.set_alternate("/", "y", "x")
    seen.append(router.version)
    router.subscribe("/", "a", queue(1))
    seen.append(router.version)
    router.unsubscribe("/", "a", queue(1))
    seen.append(router.version)
    router.unbind_exchange("/", "x", "y", "#", {})
    seen.append(router.version)
    router.unbind("/", "x", queue(1), "#", {})
    seen.append(router.version)
    router.remove_exchange("/", "x")
    seen.append(router.version)
    router.remove_destination("/", "q", queue(1))
    seen.append(router.version)
    router.remove_vhost("/")
    seen.append(router.version)
    assert seen == sorted(set(seen))


# ------------------------------------------------------------------------------------------------ a model

NAMES = ("d", "f", "t", "u")
KINDS = {"d": "direct", "f": "fanout", "t": "topic", "u": "direct"}
tables = st.sampled_from([{}, {"n": 1}, {"n": True}])
keys = st.sampled_from(["a", "a.b", "*", "#"])
targets = st.integers(1, 3).map(queue) | st.sampled_from(NAMES)
changes = st.tuples(st.sampled_from(["bind", "bind", "unbind", "drop queue", "drop exchange"]), st.sampled_from(NAMES), targets, keys, tables)


Change = tuple[str, str, int | str, str, dict[str, object]]


class Model:
    """Bindings as a list; the alternate of `u` is `t`."""

    def __init__(self) -> None:
        self.bindings: list[tuple[str, int | str, str, str]] = []

    def found(self, name: str, key: str) -> list[int | str]:
        return [target for source, target, pattern, _ in self.bindings if source == name and self.fits(KINDS[name], pattern, key)]

    def fits(self, kind: str, pattern: str, key: str) -> bool:
        if kind == "topic":
            return pattern in (key, "#") or (pattern == "*" and "." not in key)
        return kind == "fanout" or pattern == key

    def route(self, name: str, key: str) -> set[int]:
        reached: set[str] = set()
        todo = [name]
        out: set[int] = set()
        while todo:
            here = todo.pop()
            if here in reached:
                continue
            reached.add(here)
            found = self.found(here, key)
            if not found and here == "u":
                todo.append("t")
            todo.extend(target for target in found if isinstance(target, str))
            out.update(target for target in found if isinstance(target, int))
        return out


@given(st.lists(changes, max_size=40), st.sampled_from(NAMES), st.sampled_from(["a", "a.b", "b"]))
@settings(max_examples=300)
def test_any_history_routes_like_a_list_of_bindings(history: list[Change], exchange: str, key: str) -> None:
    router, model = make(*KINDS.items()), Model()
    router.set_alternate("/", "u", "t")
    for verb, source, target, pattern, table in history:
        binding = (source, target, pattern, repr(table))
        if verb == "bind":
            if binding not in model.bindings:
                model.bindings.append(binding)
            if isinstance(target, str):
                router.bind_exchange("/", source, target, pattern, table)
            else:
                router.bind("/", source, target, pattern, table)
        elif verb == "unbind":
            if binding in model.bindings:
                model.bindings.remove(binding)
            if isinstance(target, str):
                router.unbind_exchange("/", source, target, pattern, table)
            else:
                router.unbind("/", source, target, pattern, table)
        elif verb == "drop queue" and isinstance(target, int):
            model.bindings = [b for b in model.bindings if b[1] != target]
            router.remove_destination("/", "", target)
        elif verb == "drop exchange" and source != "u":
            model.bindings = [b for b in model.bindings if source not in (b[0], b[1])]
            router.remove_exchange("/", source)
            router.add_exchange("/", source, KINDS[source], {})
    assert route(router, exchange, key) == sorted(model.route(exchange, key))
    assert sum(len(bindings) for bindings in router.vhosts["/"].inbound.values()) == len(model.bindings)
