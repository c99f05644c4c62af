import json

import pytest

from trilogue.core.catalog import Catalog
from trilogue.core.definitions import Placement, definitions, plan_definitions
from trilogue.core.errors import InvalidArgument, NotFound, PreconditionFailed
from trilogue.core.passwords import ARGON2ID, SHA256, verify

# As RabbitMQ 3.10 writes it.
DOCUMENT = {
    "rabbit_version": "3.10.8",
    "users": [{"name": "app", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "hashing_algorithm": SHA256,
               "tags": ["monitoring"], "limits": {"max-connections": 5}}],
    "vhosts": [{"name": "/"}, {"name": "shop", "metadata": {"description": "orders", "tags": ["t"], "default_queue_type": "undefined"}}],
    "permissions": [{"user": "app", "vhost": "shop", "configure": "", "write": ".*", "read": "^orders"}],
    "topic_permissions": [{"user": "app", "vhost": "shop", "exchange": "amq.topic", "write": "^{username}", "read": ".*"}],
    "parameters": [
        {"value": {"max-queues": 50}, "vhost": "shop", "component": "vhost-limits", "name": "limits"},
        {"value": {"pattern": "^o", "apply-to": "queues", "definition": {"max-length": 7}, "priority": 1}, "vhost": "shop",
         "component": "operator_policy", "name": "cap"},
        {"value": {"src-uri": "amqp://"}, "vhost": "shop", "component": "shovel", "name": "s"},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "home"}],
    "policies": [{"vhost": "shop", "name": "dlx", "pattern": "^orders", "apply-to": "queues", "priority": 0,
                  "definition": {"dead-letter-exchange": "dead"}}],
    "queues": [
        {"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 9}},
        {"name": "events", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "stream"}},
    ],
    "exchanges": [{"name": "in", "vhost": "shop", "type": "topic", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}],
    "bindings": [
        {"source": "in", "vhost": "shop", "destination": "orders", "destination_type": "queue", "routing_key": "o.#", "arguments": {}},
        {"source": "amq.topic", "vhost": "shop", "destination": "in", "destination_type": "exchange", "routing_key": "#", "arguments": {}},
    ],
}
SECTIONS = set(DOCUMENT) - {"rabbit_version"}


class Third(Placement):
    def shard_for(self, vhost, name, durable):
        return 3 if durable else 4


def imported(document=DOCUMENT, catalog=None, epoch=1, **more):
    catalog = catalog or Catalog()
    change = plan_definitions(catalog, document, Third(), epoch, **more)
    assert change is not None
    assert catalog.apply(change)
    return catalog


def test_an_export_of_rabbitmq_comes_in_as_one_change():
    catalog = imported()
    assert catalog.version == 1
    orders = catalog.destination("shop", "orders")
    assert (orders.shard, orders.effective.max_length, orders.effective.dead_letter_exchange) == (3, 7, "dead")
    assert len(catalog.destination("shop", "events").partitions) == 1
    assert {binding.routing_key for binding in orders.incoming.values()} == {"o.#"}
    assert catalog.vhost("shop").limits == {"max-queues": 50}
    assert catalog.vhost("shop").description == "orders"
    assert catalog.user("app").limits == {"max-connections": 5}
    assert verify(catalog.user("app").algorithm, catalog.user("app").password_hash, "test12")
    assert set(catalog.parameters) == {("shop", "shovel", "s"), ("", "", "cluster_name")}


def test_importing_again_changes_nothing():
    catalog = imported()
    assert plan_definitions(catalog, DOCUMENT, Third(), 1) is None
    assert plan_definitions(catalog, definitions(catalog), Third(), 1) is None


def test_what_is_exported_makes_an_equal_catalog():
    catalog = imported()
    document = json.loads(json.dumps(definitions(catalog)))
    assert set(document) == SECTIONS
    again = imported(document)
    assert definitions(again) == definitions(catalog)
    assert {entry["name"] for entry in document["exchanges"]} == {"in"}


def test_one_vhost_names_no_vhost():
    document = definitions(imported(), "shop")
    assert set(document) == {"parameters", "policies", "queues", "exchanges", "bindings"}
    assert all("vhost" not in entry for section in document.values() for entry in section)
    catalog = Catalog()
    catalog.apply(catalog.plan_vhost("copy"))
    imported(document, catalog, vhost="copy")
    assert definitions(catalog, "copy") == document
    with pytest.raises(NotFound):
        plan_definitions(catalog, document, Third(), 1, vhost="no")
    with pytest.raises(InvalidArgument, match=r"parameters\[0\]: 'vhost' must be a string"):
        plan_definitions(catalog, document, Third(), 1)


def test_exclusive_queues_and_their_bindings_stay_at_home():
    catalog = imported()
    catalog.apply(catalog.plan_queue("shop", "mine", False, True, False, {}, 4, 1, 1))
    before = definitions(catalog)
    catalog.apply(catalog.plan_bind("shop", "in", "mine", "k", {}, False, 1, 1))
    assert definitions(catalog) == before
    assert "mine" not in {entry["name"] for entry in before["queues"]}


def test_transient_queues_belong_to_the_epoch_of_the_import():
    catalog = imported({"vhosts": [{"name": "/"}], "queues": [{"name": "t", "vhost": "/", "durable": False}]}, epoch=6)
    assert (catalog.destination("/", "t").shard, catalog.destination("/", "t").epoch) == (4, 6)


def test_strings_that_stand_for_something_else():
    catalog = imported({
        "vhosts": [{"name": "/"}], "users": [{"name": "u", "password_hash": "", "tags": "administrator, management"}],
        "queues": [{"name": "q", "vhost": "/", "durable": "true", "auto_delete": "false", "arguments": []}]})
    assert catalog.user("u").tags == ["administrator", "management"]
    assert catalog.destination("/", "q").durable


def test_a_password_in_the_clear_is_hashed_once():
    document = {"users": [{"name": "u", "password": "secret", "tags": []}]}
    catalog = imported(document)
    assert catalog.user("u").algorithm == ARGON2ID
    assert verify(ARGON2ID, catalog.user("u").password_hash, "secret")
    assert plan_definitions(catalog, document, Third(), 1) is None
    imported({"users": [{"name": "u", "password": "other", "tags": []}]}, catalog)
    assert verify(ARGON2ID, catalog.user("u").password_hash, "other")
    imported({"users": [{"name": "u", "password": "", "tags": []}]}, catalog)
    assert catalog.user("u").password_hash == ""


@pytest.mark.parametrize(("document", "kind", "text"), [
    ([], InvalidArgument, "definitions must be an object"),
    ({"queues": {}}, InvalidArgument, "'queues' must be a list"),
    ({"queues": [3]}, InvalidArgument, "queues[0] is not an object"),
    ({"queues": [{"vhost": "/"}]}, InvalidArgument, "queues[0]: 'name' must be a string"),
    ({"queues": [{"vhost": "/", "name": "q", "durable": 1}]}, InvalidArgument, "queues[0]: 'durable' must be true or false"),
    ({"queues": [{"vhost": "/", "name": "q", "arguments": 1}]}, InvalidArgument, "queues[0]: 'arguments' must be an object"),
    ({"queues": [{"vhost": "no", "name": "q"}]}, NotFound, "vhost 'no' not found"),
    ({"vhosts": [{"name": "v", "default_queue_type": 4}]}, InvalidArgument, "'default_queue_type' must be a string"),
    ({"users": [{"name": "u", "password_hash": "x", "hashing_algorithm": "md5"}]}, InvalidArgument, "'hashing_algorithm' must be one of"),
    ({"users": [{"name": "u", "password_hash": "x", "tags": [1]}]}, InvalidArgument, "'tags' must be a list of strings"),
    ({"users": [{"name": "u", "password_hash": "x", "limits": {"max-channels": "1"}}]}, InvalidArgument, "'max-channels' must be a whole number"),
    ({"policies": [{"vhost": "/", "name": "p", "pattern": "a", "definition": {"expires": 1}, "priority": "x"}]}, InvalidArgument, "'priority'"),
    ({"parameters": [{"vhost": "/", "name": "p", "component": "operator_policy", "value": 4}]}, InvalidArgument, "is not an object"),
    ({"bindings": [{"vhost": "/", "source": "amq.topic", "destination": "q", "destination_type": "topic"}]}, InvalidArgument, "'destination_type'"),
    ({"queues": [{"vhost": "/", "name": "there", "durable": False}]}, PreconditionFailed, "inequivalent arg 'durable'"),
])
def test_all_or_nothing(document, kind, text):
    catalog = imported({"vhosts": [{"name": "/"}], "queues": [{"name": "there", "vhost": "/"}]})
    before = catalog.items()
    if isinstance(document, dict):
        document = {"global_parameters": [{"name": "a", "value": 1}], **document}
    with pytest.raises(kind) as e:
        plan_definitions(catalog, document, Third(), 1)
    assert text in str(e.value)
    assert catalog.items() == before
