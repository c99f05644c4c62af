"""Queue arguments, parsed once into typed fields.

Arguments come from a declaration (`x-message-ttl`) or from a policy (`message-ttl`); one table, `SPECS`, knows both names, the field, the check,
and how the two are joined. Unknown arguments are accepted and kept beside the options by whoever owns them.
-1 (numbers) and None (names) mean unset. Errors use the words that clients of RabbitMQ know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import InvalidArgument, PreconditionFailed

UNSET: Final = -1
UNLIMITED: Final = -2               # of `delivery_limit`: said explicitly, so that no default steps in; `finished` makes it UNSET

CLASSIC: Final = 0
QUORUM: Final = 1
STREAM: Final = 2
QUEUE_TYPES: Final = ["classic", "quorum", "stream"]

DROP_HEAD: Final = 0
REJECT_PUBLISH: Final = 1
REJECT_PUBLISH_DLX: Final = 2
OVERFLOWS: Final = ["drop-head", "reject-publish", "reject-publish-dlx"]

AT_MOST_ONCE: Final = 0
AT_LEAST_ONCE: Final = 1
STRATEGIES: Final = ["at-most-once", "at-least-once"]

FSYNC: Final = 0
OS: Final = 1
DURABILITIES: Final = ["fsync", "os"]

PRIORITY_MAX: Final = 255
PARTITIONS_MAX: Final = 10_000
DURATION_MS_MAX: Final = 100_000_000_000_000    # 3,000 years: sums with the clock stay far below 2**63
QUANTITY_MAX: Final = 1 << 53
QUORUM_DELIVERY_LIMIT: Final = 20
AGE_UNITS_S: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}


class Unacceptable(Exception):
    """Why a value cannot be taken, in the form that ends RabbitMQ's `invalid arg` messages."""


class QueueOptions:
    """What a queue or a topic was asked to do. A plain value: compare with `same`, change only a `copy`."""

    def __init__(self) -> None:
        self.type: i64 = CLASSIC
        self.message_ttl_ms: i64 = UNSET
        self.expires_ms: i64 = UNSET
        self.max_length: i64 = UNSET
        self.max_bytes: i64 = UNSET
        self.overflow: i64 = UNSET                      # unset means DROP_HEAD
        self.dead_letter_exchange: str | None = None    # "" is the default exchange, and a valid choice
        self.dead_letter_routing_key: str | None = None
        self.dead_letter_strategy: i64 = UNSET          # unset means AT_MOST_ONCE
        self.max_priority: i64 = UNSET
        self.single_active_consumer: bool = False
        self.delivery_limit: i64 = UNSET
        self.consumer_timeout_ms: i64 = UNSET
        self.retention_ms: i64 = UNSET                  # keep what was consumed that long
        self.deduplication: bool = False
        self.dedup_size: i64 = UNSET
        self.dedup_ttl_ms: i64 = UNSET
        self.dedup_header: str | None = None
        self.partitions: i64 = UNSET                    # from here on: topics only
        self.max_age_ms: i64 = UNSET
        self.segment_bytes: i64 = UNSET
        self.compact: bool = False
        self.durability: i64 = UNSET                    # unset means the node's choice

    def values(self) -> list[object]:
        found: list[object] = [self.type]
        for spec in SPECS:
            found.append(getattr(self, spec.field))
        return found

    def same(self, other: QueueOptions) -> bool:
        return self.values() == other.values()

    def copy(self) -> QueueOptions:
        made = QueueOptions()
        made.type = self.type
        for spec in SPECS:
            setattr(made, spec.field, getattr(self, spec.field))
        return made

    def dead_letters(self) -> bool:
        return self.dead_letter_exchange is not None

    def finished(self) -> QueueOptions:
        """With the defaults that only apply when neither an argument nor a policy spoke."""
        made = self.copy()
        if made.overflow == UNSET:
            made.overflow = DROP_HEAD
        if made.dead_letter_strategy == UNSET:
            made.dead_letter_strategy = AT_MOST_ONCE
        if made.delivery_limit == UNSET and made.type == QUORUM:
            made.delivery_limit = QUORUM_DELIVERY_LIMIT
        elif made.delivery_limit == UNLIMITED:
            made.delivery_limit = UNSET
        if made.dead_letter_exchange is None:
            made.dead_letter_routing_key = None
        return made


# ------------------------------------------------------------------------------------------------ checks

def type_name(value: object) -> str:
    """AMQP's name for the type of a field table's value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    if isinstance(value, str):
        return "longstr"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, float):
        return "double"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "table"
    return "void" if value is None else "timestamp"


def whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unacceptable(f"{{unacceptable_type,{type_name(value)}}}")
    if value > QUANTITY_MAX:
        raise Unacceptable(f"{{value_too_large,{value}}}")
    return value


def quantity(value: object) -> object:
    number = whole(value)
    if number < 0:
        raise Unacceptable(f"{{value_negative,{number}}}")
    return number


def positive(value: object) -> object:
    number = whole(value)
    if number == 0:
        raise Unacceptable("{value_zero,0}")
    return quantity(number)


def duration(value: object) -> object:
    number = whole(value)
    if number > DURATION_MS_MAX:
        raise Unacceptable(f"{{value_too_large,{number}}}")
    return quantity(number)


def positive_duration(value: object) -> object:
    return duration(positive(value))


def delivery_limit(value: object) -> object:
    number = whole(value)
    return UNLIMITED if number < 0 else number


def priority(value: object) -> object:
    number = whole(value)
    if number > PRIORITY_MAX:
        raise Unacceptable(f"{{max_value_exceeded,{number}}}")
    return quantity(number)


def partitions(value: object) -> object:
    number = whole(value)
    if number > PARTITIONS_MAX:
        raise Unacceptable(f"{{max_value_exceeded,{number}}}")
    return positive(number)


def flag(value: object) -> object:
    if not isinstance(value, bool):
        raise Unacceptable(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Unacceptable(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def name(value: object) -> object:
    chosen = text(value)
    if len(chosen.encode("utf-8", "replace")) > 255:
        raise Unacceptable("name_too_long")
    return chosen


def age(value: object) -> object:
    """`7D`, `36h`, `90s`: the unit is one of Y, M, D, h, m, s."""
    chosen = text(value)
    digits = chosen[:-1]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10 or chosen[-1] not in AGE_UNITS_S:
        raise Unacceptable("invalid_max_age")
    return duration(int(digits) * AGE_UNITS_S[chosen[-1]] * 1000)


def one_of(value: object, choices: list[str], reason: str) -> int:
    chosen = text(value)
    if chosen not in choices:
        raise Unacceptable(reason)
    return choices.index(chosen)


def overflow(value: object) -> object:
    return one_of(value, OVERFLOWS, "invalid_overflow")


def strategy(value: object) -> object:
    return one_of(value, STRATEGIES, "invalid_dlx_strategy")


def durability(value: object) -> object:
    return one_of(value, DURABILITIES, "invalid_durability")


# ------------------------------------------------------------------------------------------------ the table

ALL: Final = [CLASSIC, QUORUM, STREAM]
QUEUES: Final = [CLASSIC, QUORUM]
STREAMS: Final = [STREAM]


class Spec:
    """One option: its argument, its field, and its rules. The policy key is the argument without `x-`."""

    def __init__(self, argument: str, field: str, check: Callable[[object], object], types: list[int], lower_wins: bool = False,
                 operator: bool = False, strict: bool = True, by_policy: bool = True) -> None:
        self.argument: str = argument
        self.field: str = field
        self.check: Callable[[object], object] = check
        self.types: list[int] = types           # queue types that have this option
        self.lower_wins: bool = lower_wins      # a limit: the lower of argument, policy and operator policy; else the argument's
        self.operator: bool = operator          # may an operator policy set it?
        self.strict: bool = strict              # must a redeclaration repeat it?
        self.by_policy: bool = by_policy        # may a policy set it?


SPECS: Final = [
    Spec("x-message-ttl", "message_ttl_ms", duration, QUEUES, lower_wins=True, operator=True),
    Spec("x-expires", "expires_ms", positive_duration, QUEUES, lower_wins=True, operator=True),
    Spec("x-max-length", "max_length", quantity, QUEUES, lower_wins=True, operator=True),
    Spec("x-max-length-bytes", "max_bytes", quantity, ALL, lower_wins=True, operator=True),
    Spec("x-overflow", "overflow", overflow, QUEUES),
    Spec("x-dead-letter-exchange", "dead_letter_exchange", name, QUEUES),
    Spec("x-dead-letter-routing-key", "dead_letter_routing_key", name, QUEUES),
    Spec("x-dead-letter-strategy", "dead_letter_strategy", strategy, QUEUES),
    Spec("x-max-priority", "max_priority", priority, QUEUES, by_policy=False),
    Spec("x-single-active-consumer", "single_active_consumer", flag, QUEUES, by_policy=False),
    Spec("x-delivery-limit", "delivery_limit", delivery_limit, QUEUES, lower_wins=True, operator=True),
    Spec("x-consumer-timeout", "consumer_timeout_ms", positive_duration, QUEUES, lower_wins=True, strict=False),
    Spec("x-retention", "retention_ms", duration, QUEUES, strict=False),
    Spec("x-deduplication", "deduplication", flag, QUEUES),
    Spec("x-message-deduplication", "deduplication", flag, QUEUES),
    Spec("x-cache-size", "dedup_size", positive, QUEUES),
    Spec("x-cache-ttl", "dedup_ttl_ms", positive_duration, QUEUES),
    Spec("x-deduplication-header", "dedup_header", name, QUEUES),
    Spec("x-partitions", "partitions", partitions, STREAMS, strict=False, by_policy=False),
    Spec("x-max-age", "max_age_ms", age, STREAMS, lower_wins=True),
    Spec("x-stream-max-segment-size-bytes", "segment_bytes", positive, STREAMS),
    Spec("x-compact", "compact", flag, STREAMS, strict=False, by_policy=False),
    Spec("x-durability", "durability", durability, STREAMS, strict=False, by_policy=False),
]
BY_ARGUMENT: Final = {spec.argument: spec for spec in SPECS}
BY_POLICY_KEY: Final = {spec.argument[2:]: spec for spec in SPECS if spec.by_policy}


# ------------------------------------------------------------------------------------------------ from arguments

def queue_type(arguments: dict[str, object], where: str, default: str = "classic") -> i64:
    wanted = arguments.get("x-queue-type", default)
    if not isinstance(wanted, str) or wanted not in QUEUE_TYPES:
        reason = "invalid_queue_type" if isinstance(wanted, str) else f"{{unacceptable_type,{type_name(wanted)}}}"
        raise InvalidArgument(f"invalid arg 'x-queue-type' for {where}: {reason}")
    return QUEUE_TYPES.index(wanted)


def parse(arguments: dict[str, object], where: str, default_type: str = "classic") -> QueueOptions:
    """The options of a declaration; `where` is how errors name the queue (`queue 'q' in vhost '/'`)."""
    options = QueueOptions()
    options.type = queue_type(arguments, where, default_type)
    for argument, value in arguments.items():
        spec = BY_ARGUMENT.get(argument)
        if spec is None:
            continue
        if int(options.type) not in spec.types:
            raise InvalidArgument(f"invalid arg '{argument}' for {where} of queue type {QUEUE_TYPES[options.type]}")
        try:
            setattr(options, spec.field, spec.check(value))
        except Unacceptable as e:
            raise InvalidArgument(f"invalid arg '{argument}' for {where}: {e}") from None
    if options.dead_letter_routing_key is not None and options.dead_letter_exchange is None:
        raise InvalidArgument(f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined")
    return options


def stored(arguments: dict[str, object], type: str) -> QueueOptions:
    """The options of arguments that `parse` once accepted. Nothing is refused: a later, stricter version must still read an older log."""
    options = QueueOptions()
    options.type = QUEUE_TYPES.index(type) if type in QUEUE_TYPES else CLASSIC
    for argument, value in arguments.items():
        spec = BY_ARGUMENT.get(argument)
        if spec is not None:
            try:
                setattr(options, spec.field, spec.check(value))
            except Unacceptable:
                continue
    return options


def joined(options: QueueOptions, definition: dict[str, object]) -> QueueOptions:
    """`options` with what a policy's checked definition adds: limits at their lower value, everything else only where nothing was said."""
    made = options.copy()
    for key, value in definition.items():
        spec = BY_POLICY_KEY.get(key)
        if spec is None or int(options.type) not in spec.types:
            continue
        if key == "dead-letter-routing-key" and options.dead_letter_exchange is not None:
            continue    # the key belongs to the exchange it was written with
        asked = spec.check(value)
        present = getattr(made, spec.field)
        unsaid = present == UNSET or present is None or present is False
        if unsaid or (spec.lower_wins and isinstance(asked, int) and asked >= 0 and (present < 0 or asked < present)):
            setattr(made, spec.field, asked)
    return made


# ------------------------------------------------------------------------------------------------ redeclaration

def alike(a: object, b: object) -> bool:
    """Equal, and not as True equals 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def plain(value: object) -> str:
    if isinstance(value, bool):
        return "'true'" if value else "'false'"
    return f"'{value}'"


def described(present: bool, value: object) -> str:
    return f"the value {plain(value)} of type '{type_name(value)}'" if present else "none"


def inequivalent(key: str, where: str, received: str, current: str) -> PreconditionFailed:
    return PreconditionFailed(f"inequivalent arg '{key}' for {where}: received {received} but current is {current}")


def require_field(key: str, where: str, received: object, current: object) -> None:
    if not alike(received, current):
        raise inequivalent(key, where, plain(received), plain(current))


def require_argument(key: str, where: str, received: dict[str, object], current: dict[str, object]) -> None:
    new_there = key in received
    old_there = key in current
    new = received.get(key)
    old = current.get(key)
    if new_there == old_there and alike(new, old):
        return
    if new_there and old_there:
        raise inequivalent(key, where, plain(new), plain(old))
    raise inequivalent(key, where, described(new_there, new), described(old_there, old))


def require_equivalent(where: str, received: dict[str, object], current: dict[str, object], current_type: str, default_type: str) -> None:
    """Raises RabbitMQ's 406 unless every strict argument is the same in both; an absent queue type stands for the default."""
    if received.get("x-queue-type", default_type) != current_type:
        require_argument("x-queue-type", where, received, {"x-queue-type": current_type})
    for spec in SPECS:
        if spec.strict:
            require_argument(spec.argument, where, received, current)
