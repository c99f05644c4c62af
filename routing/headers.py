"""The headers exchange: bindings match by the message's headers, with RabbitMQ's meaning of `x-match`.

=============  =======================================================================================
`x-match`      a binding matches if
=============  =======================================================================================
all (default)  every argument whose name does not begin with `x-` is there with the same type and value
any            at least one such argument is
all-with-x     as `all`, and names that begin with `x-` count too, except `x-match` itself
any-with-x     as `any`, in the same way
=============  =======================================================================================

An argument without a value (void) asks only for the header to be there. `all` of nothing matches everything, `any` of nothing nothing.

Bindings are filed under what they ask for, so that a message costs a look-up per header and not a comparison per binding.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.routing.arguments import canonical
from trilogue.routing.exchange import Binding, Exchange

MODES: Final = ("all", "any", "all-with-x", "any-with-x")
PRESENT: Final = canonical(None)


class Rule:
    """A binding ready to be matched. `terms`: header name to the form of its value, or `PRESENT`."""

    def __init__(self, binding: Binding) -> None:
        mode = match_mode(binding.arguments)
        with_x = mode.endswith("-with-x")
        self.target: i64 = binding.target
        self.every: bool = mode.startswith("all")
        self.terms: dict[str, object] = {}
        for name, value in binding.arguments.items():
            if name != "x-match" and (with_x or not name.startswith("x-")):
                self.terms[name] = canonical(value)

    def files(self) -> list[tuple[str, object]]:
        """Under what to look for it: any of the terms, or for `all` one term that is as particular as possible."""
        if not self.every:
            return list(self.terms.items())
        best: list[tuple[str, object]] = []
        for name, form in self.terms.items():
            if form != PRESENT:
                return [(name, form)]
            if not best:
                best.append((name, form))
        return best

    def holds(self, headers: dict[str, object]) -> bool:
        """All terms; for a rule of the kind `any`, having been found is enough."""
        if not self.every:
            return True
        for name, form in self.terms.items():
            if name not in headers:
                return False
            if form != PRESENT and canonical(headers[name]) != form:
                return False
        return True


class HeadersExchange(Exchange):
    def __init__(self, name: str, number: i64) -> None:
        super().__init__(name, number)
        self.rules: dict[tuple[int, str, tuple[object, ...]], Rule] = {}
        self.filed: dict[tuple[str, object], dict[Rule, None]] = {}
        self.always: dict[Rule, None] = {}

    def varies(self) -> bool:
        return True

    def add(self, binding: Binding) -> None:
        rule = Rule(binding)
        self.rules[(binding.target, binding.routing_key, binding.identity)] = rule
        if rule.every and not rule.terms:
            self.always[rule] = None
        for place in rule.files():
            self.filed.setdefault(place, {})[rule] = None

    def remove(self, binding: Binding) -> None:
        rule = self.rules.pop((binding.target, binding.routing_key, binding.identity))
        if rule in self.always:
            del self.always[rule]
        for place in rule.files():
            rules = self.filed[place]
            del rules[rule]
            if not rules:
                del self.filed[place]

    def match(self, routing_key: bytes, headers: dict[str, object], out: list[int]) -> None:
        for rule in self.always:
            out.append(rule.target)
        if not self.filed:
            return
        for name, value in headers.items():
            form = canonical(value)
            self.match_filed((name, form), headers, out)
            if form != PRESENT:
                self.match_filed((name, PRESENT), headers, out)

    def match_filed(self, place: tuple[str, object], headers: dict[str, object], out: list[int]) -> None:
        rules = self.filed.get(place)
        if rules is not None:
            for rule in rules:
                if rule.holds(headers):
                    out.append(rule.target)

    def targets(self) -> list[int]:
        return [int(rule.target) for rule in self.rules.values()]


def match_mode(arguments: dict[str, object]) -> str:
    """The binding's `x-match`. What the catalog would refuse counts as the strictest, `all`."""
    mode = arguments.get("x-match")
    if isinstance(mode, str) and mode in MODES:
        return mode
    return "all"
