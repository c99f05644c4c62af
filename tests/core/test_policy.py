import pytest

from trilogue.core.arguments import UNSET
from trilogue.core.catalog import Catalog
from trilogue.core.errors import InvalidArgument


@pytest.fixture
def catalog():
    made = Catalog()
    made.apply(made.plan_vhost("/"))
    return made


def queue(catalog, name, **arguments):
    made = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    assert catalog.apply(catalog.plan_queue("/", name, True, False, False, made, 0))
    return catalog.destination("/", name)


def policy(catalog, name, pattern, definition, **more):
    assert catalog.apply(catalog.plan_policy("/", name, pattern, definition, **more))


def test_only_the_matching_policy_of_highest_priority_counts(catalog):
    orders = queue(catalog, "orders")
    policy(catalog, "low", "^ord", {"max-length": 1, "message-ttl": 9}, priority=1)
    policy(catalog, "high", "^ord", {"max-length": 5}, priority=2)
    policy(catalog, "other", "^x", {"max-length": 2}, priority=3)
    assert orders.policy.name == "high"
    assert (orders.effective.max_length, orders.effective.message_ttl_ms) == (5, UNSET)
    catalog.apply(catalog.plan_delete_policy("/", "high"))
    assert (orders.effective.max_length, orders.effective.message_ttl_ms) == (1, 9)


def test_of_equal_priorities_the_first_name(catalog):
    found = queue(catalog, "q")
    policy(catalog, "b", ".*", {"max-length": 2})
    policy(catalog, "a", ".*", {"max-length": 1})
    policy(catalog, "c", ".*", {"max-length": 3})
    assert found.policy.name == "a"


def test_a_policy_meets_queues_that_come_later(catalog):
    policy(catalog, "p", "^q", {"expires": 5})
    assert queue(catalog, "q").effective.expires_ms == 5
    assert queue(catalog, "r").policy is None


def test_of_limits_the_lowest_of_argument_policy_and_operator_policy(catalog):
    found = queue(catalog, "q", max_length=10, message_ttl=10)
    policy(catalog, "p", ".*", {"max-length": 20, "message-ttl": 5, "max-length-bytes": 100})
    policy(catalog, "o", ".*", {"max-length": 30, "message-ttl": 7, "max-length-bytes": 50}, operator=True)
    assert (found.effective.max_length, found.effective.message_ttl_ms, found.effective.max_bytes) == (10, 5, 50)
    assert (found.policy.name, found.operator_policy.name) == ("p", "o")
    assert found.options.message_ttl_ms == 10


@pytest.mark.parametrize(("apply_to", "affected"), [
    ("all", {"classic", "quorum", "stream"}), ("queues", {"classic", "quorum", "stream"}), ("exchanges", set()),
    ("classic_queues", {"classic"}), ("quorum_queues", {"quorum"}), ("streams", {"stream"}),
])
def test_scope(catalog, apply_to, affected):
    found = {type: queue(catalog, type, queue_type=type) for type in ("classic", "quorum", "stream")}
    policy(catalog, "p", ".*", {"max-length-bytes": 7}, apply_to=apply_to)
    assert {type for type in found if found[type].effective.max_bytes == 7} == affected


def test_an_alternate_exchange_by_policy_or_argument(catalog):
    catalog.apply(catalog.plan_exchange("/", "x", "direct", True, False, False, {}))
    catalog.apply(catalog.plan_exchange("/", "own", "direct", True, False, False, {"alternate-exchange": "mine"}))
    policy(catalog, "p", ".*", {"alternate-exchange": "spare"}, apply_to="exchanges")
    assert catalog.exchange("/", "x").alternate == "spare"
    assert catalog.exchange("/", "own").alternate == "mine"
    assert catalog.exchange("/", "amq.topic").alternate == "spare"
    catalog.apply(catalog.plan_delete_policy("/", "p"))
    assert catalog.exchange("/", "x").alternate == ""


def test_policies_stay_in_their_vhost(catalog):
    catalog.apply(catalog.plan_vhost("v"))
    catalog.apply(catalog.plan_queue("v", "q", True, False, False, {}, 0))
    policy(catalog, "p", ".*", {"max-length": 1})
    assert catalog.destination("v", "q").policy is None


@pytest.mark.parametrize(("change", "text"), [
    ({"pattern": "("}, "invalid regexp"),
    ({"apply_to": "some"}, "apply-to 'some' unrecognised"),
    ({"definition": {}}, "no policy provided"),
    ({"definition": {"max-len": 1}}, "max-len: not a recognised policy setting"),
    ({"definition": {"max-length": -1}}, "max-length: {value_negative,-1}"),
    ({"definition": {"max-priority": 5}}, "max-priority: not a recognised policy setting"),
    ({"definition": {"dead-letter-exchange": "x"}, "operator": True}, "not allowed in an operator policy"),
    ({"definition": {"alternate-exchange": "x"}, "operator": True}, "not a recognised policy setting"),
    ({"definition": {"alternate-exchange": 1}}, "{unacceptable_type,signedint}"),
    ({"priority": 2**40}, "priority is out of range"),
    ({"name": "n" * 256}, "longer than 255"),
])
def test_a_bad_policy_is_refused(catalog, change, text):
    asked = {"vhost": "/", "name": "p", "pattern": ".*", "definition": {"max-length": 1}, **change}
    with pytest.raises(InvalidArgument) as e:
        catalog.plan_policy(**asked)
    assert text in str(e.value)


def test_settings_that_mean_something_elsewhere_are_kept(catalog):
    policy(catalog, "ha", ".*", {"ha-mode": "all", "queue-mode": "lazy"})
    assert catalog.vhost("/").policies["ha"].definition == {"ha-mode": "all", "queue-mode": "lazy"}
