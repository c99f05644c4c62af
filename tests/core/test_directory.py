import itertools

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilogue.core.catalog import Catalog
from trilogue.core.errors import Corrupt, FormatTooNew, PeerError
from trilogue.core.observer import CatalogObserver

VHOSTS = st.sampled_from(["/", "v"])
NAMES = st.sampled_from(["a", "b", "c"])
EXCHANGES = st.sampled_from(["a", "b", "c", "amq.topic", "amq.fanout"])
KEYS = st.sampled_from(["", "k"])
OWNERS = st.sampled_from([1, 2])
EPOCHS = st.sampled_from([1, 2])
PATTERNS = st.sampled_from([".*", "^a", ""])
ARGUMENTS = st.sampled_from([{}, {"x-max-length": 3}, {"x-queue-type": "stream", "x-partitions": 2}, {"x-message-ttl": 5, "own": [1]}])
BINDING_ARGUMENTS = st.sampled_from([{}, {"x-match": "any"}])
FLAGS = st.booleans()
LIMIT = st.sampled_from([{}, {"max-queues": 2}, {"max-connections": -1}])

REQUESTS = st.one_of(
    st.tuples(st.just("plan_vhost"), VHOSTS, NAMES),
    st.tuples(st.just("plan_delete_vhost"), VHOSTS),
    st.tuples(st.just("plan_vhost_limits"), VHOSTS, LIMIT),
    st.tuples(st.just("plan_user"), NAMES, NAMES, st.just("argon2id"), st.just(["administrator"])),
    st.tuples(st.just("plan_delete_user"), NAMES),
    st.tuples(st.just("plan_permission"), VHOSTS, NAMES, PATTERNS, PATTERNS, PATTERNS),
    st.tuples(st.just("plan_topic_permission"), VHOSTS, NAMES, EXCHANGES, PATTERNS, PATTERNS),
    st.tuples(st.just("plan_exchange"), VHOSTS, NAMES, st.sampled_from(["topic", "fanout"]), FLAGS, FLAGS, FLAGS, st.just({}), EPOCHS),
    st.tuples(st.just("plan_delete_exchange"), VHOSTS, NAMES),
    st.tuples(st.just("plan_queue"), VHOSTS, NAMES, FLAGS, FLAGS, FLAGS, ARGUMENTS, st.just(1), OWNERS, EPOCHS),
    st.tuples(st.just("plan_delete_queue"), VHOSTS, NAMES, OWNERS, EPOCHS),
    st.tuples(st.just("plan_topic"), VHOSTS, NAMES, st.integers(1, 3), st.just({})),
    st.tuples(st.just("plan_partitions"), VHOSTS, NAMES, st.integers(1, 5)),
    st.tuples(st.just("plan_bind"), VHOSTS, EXCHANGES, NAMES, KEYS, BINDING_ARGUMENTS, FLAGS, OWNERS, EPOCHS),
    st.tuples(st.just("plan_unbind"), VHOSTS, EXCHANGES, NAMES, KEYS, BINDING_ARGUMENTS, FLAGS, OWNERS, EPOCHS),
    st.tuples(st.just("plan_policy"), VHOSTS, NAMES, PATTERNS, st.sampled_from([{"max-length": 2}, {"alternate-exchange": "a"}]),
              st.sampled_from(["all", "queues"]), st.integers(0, 2), FLAGS),
    st.tuples(st.just("plan_delete_policy"), VHOSTS, NAMES, FLAGS),
    st.tuples(st.just("plan_parameter"), VHOSTS, NAMES, NAMES, st.integers(0, 2)),
    st.tuples(st.just("plan_delete_parameter"), VHOSTS, NAMES, NAMES),
    st.tuples(st.just("plan_end_connection"), OWNERS, EPOCHS),
    st.tuples(st.just("plan_expire_epoch"), EPOCHS),
)
BEGINNING = [
    ("plan_vhost", "/"), ("plan_vhost", "v"), ("plan_user", "a", "hash", "argon2id", []), ("plan_queue", "/", "a", True, False, False, {}, 1),
    ("plan_queue", "v", "b", False, True, False, {}, 2, 1, 1), ("plan_exchange", "/", "a", "topic", True, True, False, {}),
    ("plan_exchange", "/", "b", "fanout", False, True, False, {}, 2), ("plan_bind", "/", "a", "a", "k", {}),
    ("plan_bind", "/", "b", "a", "", {}, True), ("plan_policy", "/", "b", "^a", {"max-length": 9}), ("plan_topic", "v", "c", 2, {}),
]
STEADY = settings(deadline=None, derandomize=True, max_examples=150,
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example])


class Mirror(CatalogObserver):
    """Keeps its own picture from what it is told, and finds fault with what cannot be."""

    def __init__(self):
        self.vhosts = set()
        self.exchanges = {}
        self.destinations = {}
        self.bindings = {}
        self.parameters = {}

    def vhost_added(self, vhost):
        assert vhost.name not in self.vhosts
        self.vhosts.add(vhost.name)

    def vhost_removed(self, vhost):
        self.vhosts.remove(vhost.name)

    def exchange_added(self, exchange):
        assert (exchange.vhost, exchange.name) not in self.exchanges
        self.exchanges[exchange.vhost, exchange.name] = (exchange, exchange.alternate)

    def exchange_changed(self, exchange):
        assert self.exchanges[exchange.vhost, exchange.name][0] is exchange
        self.exchanges[exchange.vhost, exchange.name] = (exchange, exchange.alternate)

    def exchange_removed(self, exchange):
        assert self.exchanges.pop((exchange.vhost, exchange.name))[0] is exchange
        assert not any((b.vhost, b.source) == (exchange.vhost, exchange.name) for b in self.bindings.values())

    def queue_added(self, queue):
        assert queue.id not in self.destinations
        self.destinations[queue.id] = (queue, queue.effective)

    def queue_changed(self, queue):
        self.destinations[queue.id] = (queue, queue.effective)

    def queue_removed(self, queue):
        assert self.destinations.pop(queue.id)[0] is queue
        assert not any(b.target == queue.target() for b in self.bindings.values())

    topic_added = queue_added
    topic_changed = queue_changed
    topic_removed = queue_removed

    def bound(self, binding):
        assert binding.key not in self.bindings
        assert (binding.vhost, binding.source) in self.exchanges
        assert binding.to_exchange or binding.target >> 2 in self.destinations
        self.bindings[binding.key] = binding

    def unbound(self, binding):
        assert self.bindings.pop(binding.key) is binding

    def parameter_changed(self, parameter):
        self.parameters[parameter.vhost, parameter.component, parameter.name] = parameter

    def parameter_removed(self, parameter):
        del self.parameters[parameter.vhost, parameter.component, parameter.name]

    def check(self, catalog):
        assert self.vhosts == set(catalog.vhosts)
        assert self.parameters == catalog.parameters
        exchanges = [x for vhost in catalog.vhosts.values() for x in vhost.exchanges.values()]
        assert {key: found for key, (found, _) in self.exchanges.items()} == {(x.vhost, x.name): x for x in exchanges}
        assert all(alternate == found.alternate for found, alternate in self.exchanges.values())
        assert {id: found for id, (found, _) in self.destinations.items()} == catalog.by_id
        assert all(known.same(found.effective) for found, known in self.destinations.values())
        assert self.bindings == {key: b for x in exchanges for key, b in x.outgoing.items()}


def played(requests):
    """The catalog and mirror after these requests, and the changes they made."""
    catalog = Catalog()
    mirror = Mirror()
    catalog.watch(mirror)
    changes = []
    for method, *args in [*BEGINNING, *requests]:
        try:
            change = getattr(catalog, method)(*args)
        except PeerError:
            continue
        if change is not None:
            assert catalog.apply(change)
            changes.append(change)
    return catalog, mirror, changes


def consistent(catalog):
    """Both ends of every binding know it, and what policies decide is what a fresh catalog would decide."""
    for vhost in catalog.vhosts.values():
        outgoing = {key for x in vhost.exchanges.values() for key in x.outgoing}
        incoming = [key for x in vhost.exchanges.values() for key in x.incoming]
        incoming += [key for found in vhost.destinations.values() for key in found.incoming]
        assert sorted(outgoing) == sorted(incoming)
    owned = {id for queues in catalog.owned.values() for id in queues}
    assert owned == {queue.id for queue in catalog.queues() if queue.exclusive()}
    partitions = [p for topic in catalog.topics() for p in topic.partitions]
    ids = partitions + list(catalog.by_id)
    assert len(set(ids)) == len(ids)
    assert all(id < catalog.next_id for id in ids)


def settled(catalog):
    return [(id, found.effective.values(), found.policy and found.policy.name) for id, found in sorted(catalog.by_id.items())]


@STEADY
@given(st.lists(REQUESTS, min_size=10, max_size=60), st.data())
def test_a_checkpoint_and_the_tail_give_what_replay_gives(requests, data):
    catalog, mirror, changes = played(requests)
    consistent(catalog)
    mirror.check(catalog)

    replayed = Catalog()
    stored = {}
    cuts = data.draw(st.sets(st.integers(0, len(changes)), max_size=3))
    for at, change in enumerate([*changes, None]):
        if at in cuts:
            for key, value in replayed.dirty_items():
                if value is None:
                    stored.pop(key, None)
                else:
                    stored[key] = value
            assert sorted(stored.items()) == (replayed.items() if replayed.version else [])
            late = Mirror()
            recovered = Catalog()
            recovered.watch(late)
            recovered.load(stored.items())
            late.check(recovered)
            for again in changes:       # those before the checkpoint are void, whoever repeats them
                recovered.apply(again)
            assert recovered.items() == catalog.items()
            assert settled(recovered) == settled(catalog)
            consistent(recovered)
            late.check(recovered)
        if change is not None:
            assert replayed.apply(change)
    assert replayed.items() == catalog.items()
    assert settled(replayed) == settled(catalog)


def test_a_change_does_not_depend_on_the_order_in_which_names_were_made():
    made = []
    for order in itertools.permutations(["a", "b", "c"]):
        catalog = Catalog()
        for name in order:
            catalog.apply(catalog.plan_vhost(name))
        made.append(catalog.items())
    assert all(items == made[0] for items in made)


def test_access_changes_raise_the_version():
    catalog = Catalog()
    seen = set()
    for change in (lambda: catalog.plan_vhost("/"), lambda: catalog.plan_user("u", "h", "argon2id", []),
                   lambda: catalog.plan_permission("/", "u", "", "", ""), lambda: catalog.plan_topic_permission("/", "u", "x", "", ""),
                   lambda: catalog.plan_user_limits("u", {"max-channels": 1}), lambda: catalog.plan_vhost_limits("/", {"max-queues": 1}),
                   lambda: catalog.plan_delete_topic_permission("/", "u", "x"), lambda: catalog.plan_delete_permission("/", "u"),
                   lambda: catalog.plan_delete_user("u")):
        assert catalog.apply(change())
        seen.add(catalog.access_version)
    assert len(seen) == 9


def test_dirty_items_are_only_what_changed():
    catalog = Catalog()
    assert catalog.dirty_items() == []
    catalog.apply(catalog.plan_vhost("/"))
    assert len(catalog.dirty_items()) == 2      # the counters and the vhost
    assert catalog.dirty_items() == []
    catalog.apply(catalog.plan_queue("/", "q", True, False, False, {}, 0))
    catalog.apply(catalog.plan_delete_queue("/", "q"))
    counters, queue = catalog.dirty_items()
    assert counters[1] is not None
    assert queue[1] is None


def test_keys_fit_into_the_checkpoint_whatever_the_names():
    catalog = Catalog()
    vhost, name = "v" * 255, "n" * 255
    catalog.apply(catalog.plan_vhost(vhost))
    catalog.apply(catalog.plan_queue(vhost, name, True, False, False, {}, 0))
    catalog.apply(catalog.plan_bind(vhost, "amq.topic", name, "k" * 60_000, {"a": "b" * 60_000}))
    assert max(len(key) for key, _ in catalog.dirty_items()) <= 32


def test_a_checkpoint_that_contradicts_itself_is_corrupt():
    catalog = Catalog()
    catalog.apply(catalog.plan_vhost("/"))
    catalog.apply(catalog.plan_queue("/", "q", True, False, False, {}, 0))
    items = catalog.items()
    for broken in ([items[0], items[2]], [(items[1][0], b"\xff")], [(items[1][0], cbor2.dumps([1, ["/"], {}]))]):
        with pytest.raises(Corrupt):
            Catalog().load(broken)
    with pytest.raises(FormatTooNew):
        Catalog().load([(b"\xc8", cbor2.dumps([200, [], {}]))])
