"""Policies: settings that follow names.

Of all policies that match, only the one of highest priority counts; and, apart from it, the operator policy of highest priority.
Which ones match is a matter of name (`core/patterns.py`) and scope (`apply_to`).
"""

from __future__ import annotations

from typing import Final

from trilogue.core.arguments import BY_POLICY_KEY, QueueOptions, Unacceptable, joined, name
from trilogue.core.entities import Destination, Exchange, Policy
from trilogue.core.errors import InvalidArgument
from trilogue.core.patterns import Pattern, check_pattern

APPLY_TO: Final = ["all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams"]
EXCHANGE_KEYS: Final = ["alternate-exchange"]
KEPT_KEYS: Final = [            # accepted for the sake of imported definitions; they steer what this broker does differently
    "ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-failure", "ha-promote-on-shutdown", "ha-sync-batch-size", "queue-mode", "queue-version",
    "queue-master-locator", "queue-leader-locator", "max-in-memory-length", "max-in-memory-bytes", "federation-upstream", "federation-upstream-set",
    "initial-cluster-size", "target-group-size", "stream-filter-size-bytes",
]
PRIORITY_BOUND: Final = 1 << 31


def check(policy: Policy) -> None:
    """Raises unless the policy can be applied as it is."""
    check_pattern(policy.pattern)
    if policy.apply_to not in APPLY_TO:
        raise InvalidArgument(f"Validation failed\n\napply-to '{policy.apply_to}' unrecognised")
    if not -PRIORITY_BOUND <= policy.priority < PRIORITY_BOUND:
        raise InvalidArgument("Validation failed\n\npriority is out of range")
    if not policy.definition:
        raise InvalidArgument("Validation failed\n\nno policy provided")
    for key, value in policy.definition.items():
        try:
            check_setting(policy.operator, key, value)
        except Unacceptable as e:
            raise InvalidArgument(f"Validation failed\n\n{key}: {e}") from None


def check_setting(operator: bool, key: str, value: object) -> None:
    spec = BY_POLICY_KEY.get(key)
    if spec is not None:
        if operator and not spec.operator:
            raise Unacceptable("not allowed in an operator policy")
        spec.check(value)
    elif key in EXCHANGE_KEYS and not operator:
        name(value)
    elif key not in KEPT_KEYS:
        raise Unacceptable("not a recognised policy setting")


class PolicySet:
    """The policies of one vhost and kind, best first. Made anew when one changes."""

    def __init__(self, policies: list[Policy]) -> None:
        self.policies: list[Policy] = sorted(policies, key=rank)
        self.patterns: list[Pattern] = [Pattern(policy.pattern) for policy in self.policies]

    def best(self, subject: str, scopes: list[str]) -> Policy | None:
        for k in range(len(self.policies)):
            if self.policies[k].apply_to in scopes and self.patterns[k].finds(subject):
                return self.policies[k]
        return None


def rank(policy: Policy) -> tuple[int, str]:
    """RabbitMQ leaves open which of two equal priorities wins; here it is the first name, on every node."""
    return -int(policy.priority), policy.name


EXCHANGE_SCOPES: Final = ["all", "exchanges"]
DESTINATION_SCOPES: Final = [["all", "queues", "classic_queues"], ["all", "queues", "quorum_queues"], ["all", "queues", "streams"]]


def settle_destination(destination: Destination, policies: PolicySet, operator_policies: PolicySet) -> bool:
    """Find its policies and set its effective options; did they change?"""
    scopes = DESTINATION_SCOPES[destination.options.type]
    policy = policies.best(destination.name, scopes)
    operator_policy = operator_policies.best(destination.name, scopes)
    if destination.settled and policy is destination.policy and operator_policy is destination.operator_policy:
        return False
    before = destination.effective
    destination.policy = policy
    destination.operator_policy = operator_policy
    destination.effective = effective(destination.options, policy, operator_policy)
    destination.settled = True
    return not before.same(destination.effective)


def effective(options: QueueOptions, policy: Policy | None, operator_policy: Policy | None) -> QueueOptions:
    if policy is not None:
        options = joined(options, policy.definition)
    if operator_policy is not None:
        options = joined(options, operator_policy.definition)
    return options.finished()


def settle_exchange(exchange: Exchange, policies: PolicySet) -> bool:
    """Find its policy and set its alternate exchange, where an argument wins; did it change?"""
    exchange.policy = policies.best(exchange.name, EXCHANGE_SCOPES)
    before = exchange.alternate
    alternate = exchange.arguments.get("alternate-exchange")
    if alternate is None and exchange.policy is not None:
        alternate = exchange.policy.definition.get("alternate-exchange")
    exchange.alternate = alternate if isinstance(alternate, str) else ""
    return exchange.alternate != before
