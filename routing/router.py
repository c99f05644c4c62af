"""Which destinations a message goes to: the exchanges, bindings and subscriptions of all vhosts.

A view of the catalog, owned by the event loop: every change is recorded elsewhere first, and nothing is checked twice. Results name each
destination once and in ascending order, so that they do not depend on the history of the bindings.

Exchanges bound to exchanges are followed, each visited once, so cycles end. An exchange at which a message matches nothing passes it to
its alternate exchange, which counts as one more exchange to visit.
"""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.errors import NotFound
from trilogue.core.ports import TO_LIVE, Router
from trilogue.routing.exchange import KIND_MASK, TO_EXCHANGE, AllLocal, Binding, Chance, DirectExchange, Exchange, Locality, is_exchange, key_text
from trilogue.routing.kinds import make_exchange
from trilogue.routing.trie import Trie, mqtt_trie

BindingKey = tuple[str, str, tuple[object, ...]]      # source, routing key, form of the arguments


class Vhost:
    """Everything routed in one vhost.

    `inbound` holds every binding, under its target: what makes a bind idempotent, an unbind exact, and the removal of a queue complete.
    """

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.by_number: dict[int, Exchange] = {}
        self.made: i64 = 0
        self.inbound: dict[int, dict[BindingKey, Binding | None]] = {}
        self.topics: Trie = mqtt_trie()
        self.subscribed: dict[int, dict[str, None]] = {}        # filters by destination; live ones end by themselves and are not here
        self.default: DirectExchange = DirectExchange("", self.next_number())
        self.keep(self.default)

    def next_number(self) -> i64:
        self.made += 1
        return self.made << 2 | TO_EXCHANGE

    def keep(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self.by_number[exchange.number] = exchange

    def find(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}'")
        return exchange

    def bind(self, source: Exchange, binding: Binding) -> None:
        bindings = self.inbound.get(binding.target)
        if bindings is None:
            bindings = {}
            self.inbound[binding.target] = bindings
        key = (source.name, binding.routing_key, binding.identity)
        if key not in bindings:
            # The binding itself is only kept where it says more than its key does.
            bindings[key] = binding if binding.arguments or binding.target_name else None
            source.add(binding)
            if is_exchange(binding.target):
                source.onward.add(binding.target)

    def unbind(self, source: Exchange, binding: Binding) -> None:
        bindings = self.inbound.get(binding.target)
        key = (source.name, binding.routing_key, binding.identity)
        if bindings is None or key not in bindings:
            return
        del bindings[key]
        if not bindings:
            del self.inbound[binding.target]
        source.remove(binding)
        if is_exchange(binding.target):
            source.onward.remove(binding.target)

    def unbind_target(self, target: i64) -> None:
        """Remove every binding to it."""
        bindings = self.inbound.pop(target, None)
        if bindings is None:
            return
        for key, kept in bindings.items():
            source = self.exchanges[key[0]]
            source.remove(kept if kept is not None else Binding(target, "", key[1], {}))
            if is_exchange(target):
                source.onward.remove(target)

    def unbind_source(self, exchange: Exchange) -> None:
        """Remove every binding from it; the exchange itself is about to go."""
        for target in set(exchange.targets()):
            bindings = self.inbound[target]
            for key in [key for key in bindings if key[0] == exchange.name]:
                del bindings[key]
            if not bindings:
                del self.inbound[target]

    def match(self, exchange: Exchange, routing_key: bytes, headers: dict[str, object]) -> list[int]:
        """All destinations, following bindings to exchanges and alternates."""
        out: list[int] = []
        pending: list[Exchange] = [exchange]
        seen: set[int] = {exchange.number}
        while pending:
            visited = pending.pop()
            found: list[int] = []
            visited.match(routing_key, headers, found)
            if not found:
                self.visit_alternate(visited, pending, seen)
            for target in found:
                if is_exchange(target):
                    self.visit(self.by_number[target], pending, seen)
                else:
                    out.append(target)
        return out

    def visit(self, exchange: Exchange, pending: list[Exchange], seen: set[int]) -> None:
        if exchange.number not in seen:
            seen.add(exchange.number)
            pending.append(exchange)

    def visit_alternate(self, exchange: Exchange, pending: list[Exchange], seen: set[int]) -> None:
        """An alternate that is named but does not exist is as good as none."""
        name = exchange.next_alternate()
        alternate = self.exchanges.get(name) if name else None
        if alternate is not None:
            self.visit(alternate, pending, seen)

    def varies(self, exchange: Exchange) -> bool:
        """Does any exchange that a message could get to from here look at more than the routing key?"""
        pending: list[Exchange] = [exchange]
        seen: set[int] = {exchange.number}
        while pending:
            visited = pending.pop()
            if visited.varies():
                return True
            self.visit_alternate(visited, pending, seen)
            onward: list[int] = []
            visited.onward.collect(onward)
            for target in onward:
                self.visit(self.by_number[target], pending, seen)
        return False


class BindingRouter(Router):
    def __init__(self, chance: Chance, locality: Locality | None = None) -> None:
        self.version: i64 = 0
        self.shape: i64 = 0         # rises when exchanges, or the links between them, change
        self.vhosts: dict[str, Vhost] = {}
        self.chance: Chance = chance
        self.locality: Locality = AllLocal() if locality is None else locality

    def find(self, vhost: str) -> Vhost:
        found = self.vhosts.get(vhost)
        if found is None:
            raise NotFound(f"no vhost '{vhost}'")
        return found

    def add_vhost(self, vhost: str) -> None:
        if vhost not in self.vhosts:
            self.vhosts[vhost] = Vhost()
            self.version += 1

    def remove_vhost(self, vhost: str) -> None:
        if self.vhosts.pop(vhost, None) is not None:
            self.version += 1

    def add_exchange(self, vhost: str, name: str, kind: str, arguments: dict[str, object]) -> None:
        home = self.find(vhost)
        if name in home.exchanges:
            return
        exchange = make_exchange(kind, name, home.next_number(), arguments, self.chance, self.locality)
        home.keep(exchange)
        self.reshaped()

    def set_alternate(self, vhost: str, name: str, alternate: str) -> None:
        self.find(vhost).find(name).policy_alternate = alternate
        self.reshaped()

    def remove_exchange(self, vhost: str, name: str) -> None:
        home = self.find(vhost)
        exchange = home.exchanges.get(name)
        if exchange is None or exchange is home.default:
            return
        home.unbind_target(exchange.number)
        home.unbind_source(exchange)
        del home.exchanges[name]
        del home.by_number[exchange.number]
        self.reshaped()

    def add_destination(self, vhost: str, name: str, destination: int) -> None:
        home = self.find(vhost)
        home.bind(home.default, Binding(destination, "", name, {}))
        self.version += 1

    def remove_destination(self, vhost: str, name: str, destination: int) -> None:
        home = self.find(vhost)
        home.unbind_target(destination)
        for topic_filter in home.subscribed.pop(destination, {}):
            home.topics.remove(topic_filter, destination)
        self.version += 1

    def bind(self, vhost: str, source: str, destination: int, routing_key: str, arguments: dict[str, object]) -> None:
        home = self.find(vhost)
        home.bind(home.find(source), Binding(destination, "", routing_key, arguments))
        self.version += 1

    def unbind(self, vhost: str, source: str, destination: int, routing_key: str, arguments: dict[str, object]) -> None:
        home = self.find(vhost)
        home.unbind(home.find(source), Binding(destination, "", routing_key, arguments))
        self.version += 1

    def bind_exchange(self, vhost: str, source: str, target: str, routing_key: str, arguments: dict[str, object]) -> None:
        home = self.find(vhost)
        home.bind(home.find(source), Binding(home.find(target).number, target, routing_key, arguments))
        self.reshaped()

    def unbind_exchange(self, vhost: str, source: str, target: str, routing_key: str, arguments: dict[str, object]) -> None:
        home = self.find(vhost)
        home.unbind(home.find(source), Binding(home.find(target).number, target, routing_key, arguments))
        self.reshaped()

    def subscribe(self, vhost: str, topic_filter: str, destination: int) -> None:
        home = self.find(vhost)
        if home.topics.holds(topic_filter, destination):
            return
        home.topics.add(topic_filter, destination)
        if destination & KIND_MASK != TO_LIVE:
            home.subscribed.setdefault(destination, {})[topic_filter] = None
        self.version += 1

    def unsubscribe(self, vhost: str, topic_filter: str, destination: int) -> None:
        home = self.find(vhost)
        if not home.topics.remove(topic_filter, destination):
            return
        filters = home.subscribed.get(destination)
        if filters is not None:
            del filters[topic_filter]
            if not filters:
                del home.subscribed[destination]
        self.version += 1

    def reads_headers(self, vhost: str, exchange: str) -> bool:
        home = self.find(vhost)
        found = home.find(exchange)
        if found.varies_checked != self.shape:
            found.varies_beyond = home.varies(found)
            found.varies_checked = self.shape
        return found.varies_beyond

    def route(self, vhost: str, exchange: str, routing_key: bytes, headers: dict[str, object]) -> list[int]:
        home = self.find(vhost)
        found = home.find(exchange)
        if found.leads_on():
            return each_once(home.match(found, routing_key, headers))
        out: list[int] = []
        found.match(routing_key, headers, out)
        return each_once(out)

    def route_topic(self, vhost: str, topic: bytes) -> list[int]:
        out: list[int] = []
        self.find(vhost).topics.match(key_text(topic), out)
        return each_once(out)

    def reshaped(self) -> None:
        self.shape += 1
        self.version += 1


def each_once(found: list[int]) -> list[int]:
    """Ascending and without repetitions. Most lists are so already: numbers rise with time, and so do lists of bindings."""
    last: i64 = -1
    for destination in found:
        if destination <= last:
            return sorted(set(found))
        last = destination
    return found
