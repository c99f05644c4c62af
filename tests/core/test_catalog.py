import pytest

from trilogue.core.arguments import QUORUM, STREAM
from trilogue.core.catalog import Catalog
from trilogue.core.directory import FIRST_ID
from trilogue.core.entities import PREDECLARED, Queue, Topic
from trilogue.core.errors import AccessRefused, InvalidArgument, LimitExceeded, NotFound, PreconditionFailed, ResourceLocked


@pytest.fixture
def catalog():
    made = Catalog()
    made.apply(made.plan_vhost("/"))
    return made


def do(catalog, change):
    """Apply what was planned; there must be something."""
    assert change is not None
    assert catalog.apply(change)


def declare(catalog, name="q", durable=True, exclusive=False, auto_delete=False, arguments=None, owner=0, epoch=0, **more):
    return catalog.plan_queue("/", name, durable, exclusive, auto_delete, arguments or {}, 3, owner, epoch, **more)


def exchange(catalog, name="x", type="direct", durable=True, auto_delete=False, internal=False, arguments=None, epoch=0):
    return catalog.plan_exchange("/", name, type, durable, auto_delete, internal, arguments or {}, epoch)


def refused(kind, text, plan, *args, **more):
    with pytest.raises(kind) as e:
        plan(*args, **more)
    assert text in str(e.value)


# ------------------------------------------------------------------------------------------------ queues

def test_a_declared_queue_is_there_and_redeclaring_changes_nothing(catalog):
    do(catalog, declare(catalog, arguments={"x-max-length": 5}))
    queue = catalog.destination("/", "q")
    assert isinstance(queue, Queue)
    assert (queue.id, queue.shard, queue.durable, queue.owner, queue.epoch) == (FIRST_ID, 3, True, 0, 0)
    assert queue.effective.max_length == 5
    assert declare(catalog, arguments={"x-max-length": 5}) is None
    assert catalog.by_id[FIRST_ID] is queue


def test_planning_alters_nothing(catalog):
    before = catalog.items()
    declare(catalog)
    exchange(catalog)
    assert catalog.items() == before


def test_ids_are_never_reused(catalog):
    do(catalog, declare(catalog))
    do(catalog, catalog.plan_delete_queue("/", "q"))
    do(catalog, declare(catalog))
    assert catalog.destination("/", "q").id == FIRST_ID + 1


def test_a_change_planned_against_another_state_is_void(catalog):
    first = declare(catalog, "a")
    second = declare(catalog, "b")
    assert catalog.apply(first)
    assert not catalog.apply(second)
    assert not catalog.apply(first)
    assert [queue.name for queue in catalog.queues()] == ["a"]


@pytest.mark.parametrize(("other", "text"), [
    ({"durable": False, "epoch": 1}, "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"),
    ({"auto_delete": True}, "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
    ({"arguments": {}}, "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'"),
    ({"arguments": {"x-max-length": 6}}, "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received '6' but current is '5'"),
    ({"arguments": {"x-max-length": 5, "x-queue-type": "quorum"}}, "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/'"),
])
def test_an_inequivalent_queue(catalog, other, text):
    do(catalog, declare(catalog, arguments={"x-max-length": 5}))
    refused(PreconditionFailed, text, declare, catalog, **{"arguments": {"x-max-length": 5}, **other})


def test_exclusive_over_non_exclusive_is_locked_and_not_inequivalent(catalog):
    do(catalog, declare(catalog))
    refused(ResourceLocked, "cannot obtain exclusive access to locked queue 'q' in vhost '/'", declare, catalog, exclusive=True, owner=1, epoch=1)


def test_an_exclusive_queue_belongs_to_one_connection(catalog):
    do(catalog, declare(catalog, durable=False, exclusive=True, owner=7, epoch=2))
    assert declare(catalog, durable=False, exclusive=True, owner=7, epoch=2) is None
    refused(ResourceLocked, "locked queue 'q'", declare, catalog, durable=False, exclusive=True, owner=8, epoch=2)
    refused(ResourceLocked, "locked queue 'q'", declare, catalog, durable=False, exclusive=False, owner=7, epoch=2)
    refused(ResourceLocked, "locked queue 'q'", catalog.plan_delete_queue, "/", "q", 8, 2)
    refused(ResourceLocked, "locked queue 'q'", catalog.plan_bind, "/", "amq.topic", "q", "k", {}, False, 8, 2)
    do(catalog, catalog.plan_bind("/", "amq.topic", "q", "k", {}, False, 7, 2))
    refused(ResourceLocked, "locked queue 'q'", catalog.plan_unbind, "/", "amq.topic", "q", "k", {}, False, 8, 2)


def test_reserved_and_impossible_names(catalog):
    refused(AccessRefused, "queue name 'amq.mine' contains reserved prefix 'amq.*'", declare, catalog, "amq.mine")
    do(catalog, declare(catalog, "amq.gen-1", server_named=True))
    refused(InvalidArgument, "empty", declare, catalog, "")
    refused(InvalidArgument, "longer than 255", declare, catalog, "é" * 128)
    refused(NotFound, "vhost 'no' not found", catalog.plan_queue, "no", "q", True, False, False, {}, 0)


@pytest.mark.parametrize("type", ["quorum", "stream"])
@pytest.mark.parametrize(("how", "text"), [
    ({"durable": False, "epoch": 1}, "invalid property 'non-durable' for queue 'q' in vhost '/'"),
    ({"exclusive": True, "owner": 1, "epoch": 1}, "invalid property 'exclusive-owner' for queue 'q' in vhost '/'"),
    ({"auto_delete": True}, "invalid property 'auto-delete' for queue 'q' in vhost '/'"),
])
def test_replicated_types_are_durable(catalog, type, how, text):
    refused(InvalidArgument, text, declare, catalog, arguments={"x-queue-type": type}, **how)


def test_unknown_arguments_are_kept(catalog):
    do(catalog, declare(catalog, arguments={"x-ours": {"a": [1]}}))
    assert catalog.destination("/", "q").arguments == {"x-ours": {"a": [1]}}
    refused(InvalidArgument, "{value_negative,-1}", declare, catalog, "r", arguments={"x-message-ttl": -1})


def test_the_default_queue_type_of_a_vhost(catalog):
    do(catalog, catalog.plan_vhost("/", default_queue_type="quorum"))
    do(catalog, declare(catalog))
    do(catalog, declare(catalog, "temporary", durable=False, exclusive=True, owner=1, epoch=1))
    assert catalog.destination("/", "q").options.type == QUORUM
    do(catalog, catalog.plan_vhost("/", default_queue_type="classic"))
    assert catalog.destination("/", "q").options.type == QUORUM
    assert declare(catalog, arguments={"x-queue-type": "quorum"}) is None
    refused(PreconditionFailed, "received none but current is the value 'quorum' of type 'longstr'", declare, catalog)
    refused(InvalidArgument, "default queue type", catalog.plan_vhost, "/", default_queue_type="lazy")


def test_a_vhost_has_room_for_so_many_queues(catalog):
    do(catalog, catalog.plan_vhost_limits("/", {"max-queues": 1}))
    do(catalog, declare(catalog))
    text = "cannot declare queue 'r' in vhost '/': queue limit in vhost '/' (1) is reached"
    refused(LimitExceeded, text, declare, catalog, "r")
    assert declare(catalog) is None
    do(catalog, catalog.plan_vhost_limits("/", {"max-queues": -1}))
    do(catalog, declare(catalog, "r"))
    catalog.queues_per_vhost_max = 2
    do(catalog, declare(catalog, "s"))
    do(catalog, catalog.plan_vhost_limits("/", {}))
    refused(LimitExceeded, "(2) is reached", declare, catalog, "t")


def test_what_is_missing(catalog):
    refused(NotFound, "no queue 'q' in vhost '/'", catalog.destination, "/", "q")
    refused(NotFound, "no exchange 'x' in vhost '/'", catalog.exchange, "/", "x")
    assert catalog.plan_delete_queue("/", "q") is None
    assert catalog.plan_delete_exchange("/", "x") is None
    assert catalog.plan_unbind("/", "x", "q", "", {}) is None
    refused(NotFound, "no exchange 'x' in vhost '/'", catalog.plan_bind, "/", "x", "q", "", {})
    refused(NotFound, "no queue 'q' in vhost '/'", catalog.plan_bind, "/", "amq.direct", "q", "", {})
    refused(NotFound, "no exchange 'y' in vhost '/'", catalog.plan_bind, "/", "amq.direct", "y", "", {}, True)


# ------------------------------------------------------------------------------------------------ topics

def test_a_stream_is_a_topic(catalog):
    do(catalog, declare(catalog, "t", arguments={"x-queue-type": "stream", "x-partitions": 3, "x-max-age": "1h"}))
    topic = catalog.destination("/", "t")
    assert isinstance(topic, Topic)
    assert (topic.id, topic.partitions) == (FIRST_ID, [FIRST_ID + 1, FIRST_ID + 2, FIRST_ID + 3])
    assert (topic.effective.type, topic.effective.max_age_ms) == (STREAM, 3_600_000)
    assert catalog.next_id == FIRST_ID + 4
    assert catalog.plan_topic("/", "t", 3, {"x-max-age": "1h"}) is None
    refused(PreconditionFailed, "received '4' but current is '3'", catalog.plan_topic, "/", "t", 4, {"x-max-age": "1h"})
    refused(PreconditionFailed, "x-queue-type", declare, catalog, "t")


def test_topics_and_queues_share_their_names(catalog):
    do(catalog, declare(catalog, "t"))
    refused(PreconditionFailed, "x-queue-type", catalog.plan_topic, "/", "t", 1, {})


def test_partitions_only_grow(catalog):
    do(catalog, catalog.plan_topic("/", "t", 1, {}))
    topic = catalog.destination("/", "t")
    first = topic.partitions[0]
    do(catalog, catalog.plan_partitions("/", "t", 3))
    assert catalog.destination("/", "t") is topic
    assert topic.partitions[0] == first
    assert len(set(topic.partitions)) == 3
    assert catalog.plan_partitions("/", "t", 3) is None
    refused(PreconditionFailed, "cannot have fewer", catalog.plan_partitions, "/", "t", 2)
    refused(InvalidArgument, "max_value_exceeded", catalog.plan_partitions, "/", "t", 10_001)
    do(catalog, declare(catalog))
    refused(PreconditionFailed, "not a topic", catalog.plan_partitions, "/", "q", 2)


# ------------------------------------------------------------------------------------------------ exchanges and bindings

def test_predeclared_exchanges(catalog):
    assert set(catalog.vhost("/").exchanges) == set(PREDECLARED)
    assert exchange(catalog, "amq.topic", "topic") is None
    refused(PreconditionFailed, "inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': received 'direct' but current is 'topic'",
            exchange, catalog, "amq.topic", "direct")
    refused(AccessRefused, "exchange name 'amq.mine' contains reserved prefix 'amq.*'", exchange, catalog, "amq.mine")
    refused(AccessRefused, "deletion of system exchange 'amq.topic' in vhost '/' not allowed", catalog.plan_delete_exchange, "/", "amq.topic")


def test_the_default_exchange_is_left_alone(catalog):
    do(catalog, declare(catalog))
    text = "operation not permitted on the default exchange"
    refused(AccessRefused, text, exchange, catalog, "")
    refused(AccessRefused, text, catalog.plan_delete_exchange, "/", "")
    refused(AccessRefused, text, catalog.plan_bind, "/", "", "q", "q", {})
    refused(AccessRefused, text, catalog.plan_unbind, "/", "", "q", "q", {})
    refused(AccessRefused, text, catalog.plan_bind, "/", "amq.direct", "", "q", {}, True)


@pytest.mark.parametrize(("other", "text"), [
    ({"type": "fanout"}, "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"),
    ({"durable": False, "epoch": 1}, "inequivalent arg 'durable'"),
    ({"auto_delete": True}, "inequivalent arg 'auto_delete'"),
    ({"internal": True}, "inequivalent arg 'internal'"),
    ({"arguments": {"alternate-exchange": "y"}}, "received the value 'y' of type 'longstr' but current is none"),
])
def test_an_inequivalent_exchange(catalog, other, text):
    do(catalog, exchange(catalog))
    assert exchange(catalog, arguments={"own": 1}) is None
    refused(PreconditionFailed, text, exchange, catalog, **other)


def test_an_exchange_of_no_known_type(catalog):
    refused(PreconditionFailed, "unknown exchange type 'magic'", exchange, catalog, type="magic")
    refused(InvalidArgument, "alternate-exchange", exchange, catalog, arguments={"alternate-exchange": 3})
    refused(InvalidArgument, "x-delayed-type", exchange, catalog, type="x-delayed-message")
    do(catalog, exchange(catalog, type="x-delayed-message", arguments={"x-delayed-type": "topic"}))
    assert catalog.exchange("/", "x").routing_type() == "topic"
    refused(InvalidArgument, "x-delayed-type", exchange, catalog, "y", type="x-delayed-message", arguments={"x-delayed-type": "x-delayed-message"})


def test_binding_is_idempotent_and_exact(catalog):
    do(catalog, declare(catalog))
    do(catalog, catalog.plan_bind("/", "amq.topic", "q", "a.*", {"n": 1}))
    assert catalog.plan_bind("/", "amq.topic", "q", "a.*", {"n": 1}) is None
    assert catalog.plan_unbind("/", "amq.topic", "q", "a.*", {}) is None
    do(catalog, catalog.plan_unbind("/", "amq.topic", "q", "a.*", {"n": 1}))
    assert not catalog.exchange("/", "amq.topic").outgoing
    assert not catalog.destination("/", "q").incoming


def test_what_an_exchange_type_asks_of_a_binding(catalog):
    do(catalog, declare(catalog))
    do(catalog, exchange(catalog, type="x-consistent-hash"))
    refused(PreconditionFailed, "x-match", catalog.plan_bind, "/", "amq.headers", "q", "", {"x-match": "some"})
    do(catalog, catalog.plan_bind("/", "amq.headers", "q", "", {"x-match": "any-with-x"}))
    for weight in ("", "0", "-1", "x", "²", "9999999"):
        refused(PreconditionFailed, "positive integer", catalog.plan_bind, "/", "x", "q", weight, {})
    do(catalog, catalog.plan_bind("/", "x", "q", "10", {}))


def test_deleting_an_exchange_only_if_unused(catalog):
    do(catalog, declare(catalog))
    do(catalog, exchange(catalog))
    do(catalog, catalog.plan_bind("/", "x", "q", "", {}))
    refused(PreconditionFailed, "exchange 'x' in vhost '/' in use", catalog.plan_delete_exchange, "/", "x", True)
    do(catalog, catalog.plan_delete_exchange("/", "x"))
    assert not catalog.destination("/", "q").incoming


# ------------------------------------------------------------------------------------------------ epochs

def test_a_connection_takes_its_exclusive_queues_along(catalog):
    do(catalog, declare(catalog, "mine", durable=False, exclusive=True, owner=7, epoch=2))
    do(catalog, declare(catalog, "other", durable=False, exclusive=True, owner=8, epoch=2))
    do(catalog, catalog.plan_bind("/", "amq.topic", "mine", "k", {}, False, 7, 2))
    assert catalog.plan_end_connection(9, 2) is None
    do(catalog, catalog.plan_end_connection(7, 2))
    assert [queue.name for queue in catalog.queues()] == ["other"]
    assert catalog.plan_end_connection(7, 2) is None


def test_an_epoch_ends_with_everything_transient(catalog):
    do(catalog, declare(catalog, "durable"))
    do(catalog, declare(catalog, "transient", durable=False, epoch=2))
    do(catalog, declare(catalog, "durable but exclusive", exclusive=True, owner=1, epoch=2))
    do(catalog, declare(catalog, "later", durable=False, epoch=3))
    do(catalog, exchange(catalog, "passing", durable=False, epoch=2))
    do(catalog, exchange(catalog, "emptied", auto_delete=True))
    do(catalog, catalog.plan_bind("/", "emptied", "transient", "", {}))
    do(catalog, catalog.plan_bind("/", "passing", "durable", "", {}))
    do(catalog, catalog.plan_expire_epoch(2))
    assert {queue.name for queue in catalog.queues()} == {"durable", "later"}
    assert set(catalog.vhost("/").exchanges) == set(PREDECLARED)
    assert not catalog.destination("/", "durable").incoming
    assert catalog.plan_expire_epoch(2) is None
    assert catalog.plan_keep_epochs({3}) is None
    do(catalog, catalog.plan_keep_epochs({4}))
    assert {queue.name for queue in catalog.queues()} == {"durable"}


# ------------------------------------------------------------------------------------------------ vhosts, users, parameters

def test_a_vhost_goes_with_everything_in_it(catalog):
    before = catalog.items()
    do(catalog, catalog.plan_user("u", "h", "argon2id", []))
    do(catalog, catalog.plan_vhost("v"))
    do(catalog, catalog.plan_queue("v", "q", True, False, False, {}, 1))
    do(catalog, catalog.plan_topic("v", "t", 2, {}))
    do(catalog, catalog.plan_exchange("v", "x", "topic", True, True, False, {}))
    do(catalog, catalog.plan_bind("v", "x", "q", "k", {}))
    do(catalog, catalog.plan_bind("v", "amq.topic", "x", "k", {}, True))
    do(catalog, catalog.plan_policy("v", "p", ".*", {"max-length": 1}))
    do(catalog, catalog.plan_policy("v", "p", ".*", {"max-length": 1}, operator=True))
    do(catalog, catalog.plan_permission("v", "u", "", "", ""))
    do(catalog, catalog.plan_topic_permission("v", "u", "amq.topic", "", ""))
    do(catalog, catalog.plan_parameter("v", "shovel", "s", {}))
    do(catalog, catalog.plan_delete_vhost("v"))
    do(catalog, catalog.plan_delete_user("u"))
    assert catalog.items()[1:] == before[1:]    # but for the counters
    assert catalog.plan_delete_vhost("v") is None


def test_a_vhost_is_altered_in_place(catalog):
    do(catalog, declare(catalog))
    do(catalog, catalog.plan_vhost("/", "the first", ["a"]))
    assert catalog.plan_vhost("/", "the first", ["a"]) is None
    assert (catalog.vhost("/").description, catalog.vhost("/").tags) == ("the first", ["a"])
    assert catalog.destination("/", "q") is not None
    refused(InvalidArgument, "Unrecognised", catalog.plan_vhost_limits, "/", {"max-fun": 1})
    refused(InvalidArgument, "whole number", catalog.plan_vhost_limits, "/", {"max-queues": True})


def test_a_user_goes_with_all_permissions(catalog):
    do(catalog, catalog.plan_user("u", "h", "argon2id", ["administrator"]))
    do(catalog, catalog.plan_user_limits("u", {"max-connections": 3}))
    do(catalog, catalog.plan_permission("/", "u", ".*", ".*", ".*"))
    do(catalog, catalog.plan_topic_permission("/", "u", "amq.topic", "^{client_id}", ".*"))
    assert catalog.plan_permission("/", "u", ".*", ".*", ".*") is None
    do(catalog, catalog.plan_user("u", "other", "argon2id", []))
    assert catalog.user("u").limits == {"max-connections": 3}
    do(catalog, catalog.plan_delete_user("u"))
    assert not catalog.permissions
    assert not catalog.topic_permissions
    assert catalog.plan_delete_user("u") is None


def test_permissions_are_checked_when_they_are_set(catalog):
    do(catalog, catalog.plan_user("u", "h", "argon2id", []))
    refused(NotFound, "no user 'nobody'", catalog.plan_permission, "/", "nobody", "", "", "")
    refused(NotFound, "vhost 'no' not found", catalog.plan_permission, "no", "u", "", "", "")
    refused(InvalidArgument, "invalid regexp", catalog.plan_permission, "/", "u", "(", "", "")
    refused(InvalidArgument, "longer than", catalog.plan_permission, "/", "u", "a" * 100_000, "", "")
    refused(InvalidArgument, "invalid regexp", catalog.plan_topic_permission, "/", "u", "amq.topic", "(?=a)", "")
    assert catalog.plan_delete_permission("/", "u") is None


def test_parameters(catalog):
    do(catalog, catalog.plan_parameter("/", "shovel", "s", {"a": 1}))
    do(catalog, catalog.plan_parameter("", "", "cluster_name", "home"))
    assert catalog.plan_parameter("/", "shovel", "s", {"a": 1}) is None
    refused(NotFound, "vhost 'no' not found", catalog.plan_parameter, "no", "shovel", "s", 1)
    refused(InvalidArgument, "longer", catalog.plan_parameter, "/", "shovel", "s", "x" * 300_000)
    do(catalog, catalog.plan_delete_parameter("/", "shovel", "s"))
    assert set(catalog.parameters) == {("", "", "cluster_name")}
