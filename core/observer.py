"""Who wants to know what changed in the catalog, and how they are told."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from trilogue.core.entities import Binding, Entity, Exchange, Parameter, Queue, Topic, Vhost

ADDED: Final = 0
REMOVED: Final = 1
CHANGED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class CatalogObserver:
    """Follows the catalog. Told on the loop, after a change has been applied whole; override what matters, the rest does nothing.

    What is removed is told before what it depends on: bindings, then queues and exchanges, then the vhost.
    """

    def vhost_added(self, vhost: Vhost) -> None: ...

    def vhost_removed(self, vhost: Vhost) -> None: ...

    def vhost_changed(self, vhost: Vhost) -> None: ...

    def exchange_added(self, exchange: Exchange) -> None: ...

    def exchange_removed(self, exchange: Exchange) -> None: ...

    def exchange_changed(self, exchange: Exchange) -> None:
        """Its alternate exchange is another one now."""

    def queue_added(self, queue: Queue) -> None: ...

    def queue_removed(self, queue: Queue) -> None: ...

    def queue_changed(self, queue: Queue) -> None:
        """Its effective options are others now."""

    def topic_added(self, topic: Topic) -> None: ...

    def topic_removed(self, topic: Topic) -> None: ...

    def topic_changed(self, topic: Topic) -> None:
        """Its effective options or its partitions are others now."""

    def bound(self, binding: Binding) -> None: ...

    def unbound(self, binding: Binding) -> None: ...

    def access_changed(self) -> None:
        """Users, permissions or limits changed: whatever was decided by them must be decided again."""

    def parameter_changed(self, parameter: Parameter) -> None: ...

    def parameter_removed(self, parameter: Parameter) -> None: ...


class Event:
    def __init__(self, what: i64, entity: Entity) -> None:
        self.what: i64 = what
        self.entity: Entity = entity


def tell_one(observer: CatalogObserver, event: Event) -> None:
    entity = event.entity
    what = event.what
    if isinstance(entity, Queue):
        if what == ADDED:
            observer.queue_added(entity)
        elif what == REMOVED:
            observer.queue_removed(entity)
        else:
            observer.queue_changed(entity)
    elif isinstance(entity, Binding):
        if what == ADDED:
            observer.bound(entity)
        else:
            observer.unbound(entity)
    elif isinstance(entity, Topic):
        if what == ADDED:
            observer.topic_added(entity)
        elif what == REMOVED:
            observer.topic_removed(entity)
        else:
            observer.topic_changed(entity)
    else:
        tell_rare(observer, what, entity)


def tell_rare(observer: CatalogObserver, what: i64, entity: Entity) -> None:
    if isinstance(entity, Exchange):
        if what == ADDED:
            observer.exchange_added(entity)
        elif what == REMOVED:
            observer.exchange_removed(entity)
        else:
            observer.exchange_changed(entity)
    elif isinstance(entity, Vhost):
        if what == ADDED:
            observer.vhost_added(entity)
        elif what == REMOVED:
            observer.vhost_removed(entity)
        else:
            observer.vhost_changed(entity)
    elif isinstance(entity, Parameter):
        if what == REMOVED:
            observer.parameter_removed(entity)
        else:
            observer.parameter_changed(entity)
