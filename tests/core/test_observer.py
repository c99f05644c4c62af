import cbor2

from trilogue.core.catalog import Catalog
from trilogue.core.observer import CatalogObserver


class Told(CatalogObserver):
    def __init__(self, catalog):
        self.catalog = catalog
        self.news = []

    def access_changed(self):
        self.news.append("access")

    def queue_added(self, queue):
        self.news.append(("queue", queue.name, len(self.catalog.queues())))

    def vhost_changed(self, vhost):
        self.news.append(("vhost", vhost.description))


def test_observers_are_told_when_the_change_is_complete():
    catalog = Catalog()
    told = Told(catalog)
    catalog.watch(told)
    catalog.apply(catalog.plan_vhost("/"))
    catalog.apply(catalog.plan_vhost("/", "new"))
    version = catalog.access_version
    first = cbor2.loads(catalog.plan_queue("/", "a", True, False, False, {}, 0))
    second = cbor2.loads(catalog.plan_queue("/", "b", True, False, False, {}, 0))
    second["ops"][0][2]["id"] += 1
    catalog.apply(cbor2.dumps({"v": catalog.version, "next": first["next"] + 1, "ops": first["ops"] + second["ops"]}))
    assert catalog.access_version == version
    assert told.news == ["access", ("vhost", "new"), "access", ("queue", "a", 2), ("queue", "b", 2)]


def test_an_observer_need_not_care():
    catalog = Catalog()
    catalog.watch(CatalogObserver())
    for change in (lambda: catalog.plan_vhost("/"), lambda: catalog.plan_vhost("/", "new"), lambda: catalog.plan_topic("/", "t", 1, {}),
                   lambda: catalog.plan_partitions("/", "t", 2), lambda: catalog.plan_queue("/", "q", True, False, False, {}, 0),
                   lambda: catalog.plan_bind("/", "amq.topic", "q", "", {}),
                   lambda: catalog.plan_policy("/", "p", "", {"max-length": 1, "alternate-exchange": "x"}),
                   lambda: catalog.plan_parameter("/", "c", "n", 1), lambda: catalog.plan_delete_parameter("/", "c", "n"),
                   lambda: catalog.plan_delete_vhost("/")):
        assert catalog.apply(change())
