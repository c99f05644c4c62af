import cbor2
import pytest

from trilogue.core.catalog import Catalog
from trilogue.core.change import Change
from trilogue.core.entities import PREDECLARED, Vhost


@pytest.fixture
def catalog():
    made = Catalog()
    made.apply(made.plan_vhost("/"))
    return made


def do(catalog, change):
    assert change is not None
    assert catalog.apply(change)


def declare(catalog):
    return catalog.plan_queue("/", "q", True, False, False, {}, 3)


def exchange(catalog, name, auto_delete=False):
    return catalog.plan_exchange("/", name, "direct", True, auto_delete, False, {})


def test_nothing_to_do_is_no_change(catalog):
    assert Change(catalog).encoded() is None


def test_a_change_names_the_state_it_was_made_for(catalog):
    change = Change(catalog)
    taken = [change.take_id(), change.take_id()]
    change.put(Vhost("v"))
    made = cbor2.loads(change.encoded())
    assert taken == [catalog.next_id, catalog.next_id + 1]
    assert (made["v"], made["next"]) == (catalog.version, catalog.next_id + 2)
    assert made["ops"] == [[1, ["v"], {"description": "", "tags": [], "default_queue_type": "classic", "limits": {}}]]


def test_deleting_a_queue_takes_its_bindings_and_what_hangs_on_them(catalog):
    do(catalog, declare(catalog))
    do(catalog, exchange(catalog, "a", auto_delete=True))
    do(catalog, exchange(catalog, "b", auto_delete=True))
    do(catalog, exchange(catalog, "kept"))
    do(catalog, catalog.plan_bind("/", "a", "q", "", {}))
    do(catalog, catalog.plan_bind("/", "b", "a", "", {}, True))
    do(catalog, catalog.plan_bind("/", "kept", "b", "", {}, True))
    do(catalog, catalog.plan_delete_queue("/", "q"))
    assert catalog.find_exchange("/", "a") is None
    assert catalog.find_exchange("/", "b") is None
    assert not catalog.exchange("/", "kept").outgoing


def test_an_auto_delete_exchange_goes_with_its_last_binding_as_source(catalog):
    do(catalog, declare(catalog))
    do(catalog, exchange(catalog, "a", auto_delete=True))
    do(catalog, catalog.plan_bind("/", "amq.topic", "a", "", {}, True))
    do(catalog, catalog.plan_unbind("/", "amq.topic", "a", "", {}, True))
    assert catalog.find_exchange("/", "a") is not None
    do(catalog, catalog.plan_bind("/", "a", "q", "1", {}))
    do(catalog, catalog.plan_bind("/", "a", "q", "2", {}))
    do(catalog, catalog.plan_unbind("/", "a", "q", "1", {}))
    assert catalog.find_exchange("/", "a") is not None
    do(catalog, catalog.plan_unbind("/", "a", "q", "2", {}))
    assert catalog.find_exchange("/", "a") is None


def test_a_ring_and_a_loop_of_auto_delete_exchanges(catalog):
    for name in ("a", "b"):
        do(catalog, exchange(catalog, name, auto_delete=True))
    do(catalog, catalog.plan_bind("/", "a", "b", "", {}, True))
    do(catalog, catalog.plan_bind("/", "b", "a", "", {}, True))
    do(catalog, catalog.plan_bind("/", "a", "a", "", {}, True))
    do(catalog, catalog.plan_delete_exchange("/", "a"))
    assert set(catalog.vhost("/").exchanges) == set(PREDECLARED)


def test_a_long_chain_of_auto_delete_exchanges(catalog):
    do(catalog, declare(catalog))
    length = 1_200
    for n in range(length):
        do(catalog, exchange(catalog, f"x{n}", auto_delete=True))
    do(catalog, catalog.plan_bind("/", "x0", "q", "", {}))
    for n in range(1, length):
        do(catalog, catalog.plan_bind("/", f"x{n}", f"x{n - 1}", "", {}, True))
    do(catalog, catalog.plan_delete_queue("/", "q"))
    assert set(catalog.vhost("/").exchanges) == set(PREDECLARED)
