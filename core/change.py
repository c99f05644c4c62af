"""One change of the catalog while it is put together: which entities are made, and which go."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.directory import Directory
from trilogue.core.entities import Binding, Destination, Entity, Exchange, Queue, Vhost, canonical


class Change:
    """The operations of one change while it is put together. Deleting takes along whatever depends on what is deleted."""

    def __init__(self, directory: Directory) -> None:
        self.directory: Directory = directory
        self.next_id: i64 = directory.next_id
        self.ops: list[list[object]] = []
        self.gone: set[bytes] = set()                       # keys of deleted bindings
        self.gone_exchanges: set[tuple[str, str]] = set()   # (vhost, name)
        self.unbound: dict[tuple[str, str], int] = {}       # how many bindings from an exchange are gone
        self.emptied: list[Exchange] = []                   # to be deleted because their last binding goes

    def take_id(self) -> i64:
        taken = self.next_id
        self.next_id += 1
        return taken

    def put(self, entity: Entity) -> None:
        self.ops.append([int(entity.kind), entity.identity(), entity.body()])

    def drop(self, entity: Entity) -> None:
        self.ops.append([int(entity.kind), entity.identity(), None])

    def drop_binding(self, binding: Binding) -> None:
        if binding.key in self.gone:
            return
        self.gone.add(binding.key)
        self.drop(binding)
        source = self.directory.exchange(binding.vhost, binding.source)
        name = (source.vhost, source.name)
        self.unbound[name] = self.unbound.get(name, 0) + 1
        if source.auto_delete and self.unbound[name] == len(source.outgoing):
            self.emptied.append(source)

    def drop_exchange(self, exchange: Exchange) -> None:
        name = (exchange.vhost, exchange.name)
        if name in self.gone_exchanges:
            return
        self.gone_exchanges.add(name)
        for binding in exchange.outgoing.values():
            self.drop_binding(binding)
        for binding in exchange.incoming.values():
            self.drop_binding(binding)
        self.drop(exchange)

    def drop_destination(self, destination: Destination) -> None:
        for binding in destination.incoming.values():
            self.drop_binding(binding)
        self.drop(destination)

    def drop_emptied(self) -> None:
        """A loop and not a recursion: clients can chain as many auto-delete exchanges as they like."""
        while self.emptied:
            self.drop_exchange(self.emptied.pop())

    def drop_void(self, vhost: Vhost, epochs: set[int], live: bool) -> None:
        """Whatever is bound to an epoch that is (`live` false) or is not (`live` true) among `epochs`."""
        for destination in vhost.destinations.values():
            if isinstance(destination, Queue) and destination.epoch != 0 and (int(destination.epoch) in epochs) != live:
                self.drop_destination(destination)
        for exchange in vhost.exchanges.values():
            if exchange.epoch != 0 and (int(exchange.epoch) in epochs) != live:
                self.drop_exchange(exchange)

    def encoded(self) -> bytes | None:
        self.drop_emptied()
        if not self.ops:
            return None
        return canonical({"v": int(self.directory.version), "next": int(self.next_id), "ops": self.ops})
