import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.core.errors import InvalidArgument
from trilogue.routing.arguments import DEPTH_MAX, canonical, canonical_map

leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0]) | st.sampled_from(["", "a", "1"]) | st.sampled_from([b"", b"a"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2), max_leaves=4)


def same(a: object, b: object) -> bool:
    """The definition, spelled out."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return a == b


@given(values, values)
def test_equal_forms_mean_equal_types_and_values(a: object, b: object) -> None:
    assert (canonical(a) == canonical(b)) == same(a, b)


@given(values)
def test_a_form_can_be_hashed(value: object) -> None:
    assert hash(canonical(value)) == hash(canonical(value))


def test_types_are_told_apart() -> None:
    forms = [canonical(v) for v in (1, True, 1.0, "1", b"1", [1], {"1": 1}, None, "", [], {}, ["list"], ("int", 1))]
    assert len(set(forms)) == len(forms)


def test_order_of_keys_does_not_matter_and_of_items_does() -> None:
    assert canonical_map({"a": 1, "b": [1, 2]}) == canonical_map({"b": [1, 2], "a": 1})
    assert canonical_map({"b": [1, 2]}) != canonical_map({"b": [2, 1]})
    assert canonical_map({}) == ()


def test_what_does_not_equal_itself_still_has_an_identity() -> None:
    assert canonical(float("nan")) == canonical(float("nan"))
    assert canonical(0.0) != canonical(-0.0)


def test_timestamps_compare_by_value() -> None:
    day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert canonical(day) == canonical(day + datetime.timedelta(0))
    assert canonical(day) != canonical(day + datetime.timedelta(1))


def nested(depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    for _ in range(depth - 1):
        table = {"t": table}
    return {"t": table}


def test_depth_has_a_limit() -> None:
    canonical_map(nested(DEPTH_MAX - 1))
    with pytest.raises(InvalidArgument, match="deep"):
        canonical_map(nested(DEPTH_MAX))
