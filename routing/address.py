"""One address space in three spellings: MQTT topics and filters, AMQP routing keys and patterns, STOMP destinations.

The spellings are RabbitMQ's, so that mixed fleets move over unchanged. They lose something: `a/b.c` and `a.b/c` are one routing key, which
is why the original topic travels beside the key. Anything a client may get wrong raises `InvalidArgument`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import InvalidArgument

TOPIC_BYTES_MAX: Final = 65_535
LEVELS_MAX: Final = 1_000
TOPIC_EXCHANGE: Final = "amq.topic"

QUEUE: Final = 1            # /queue/N: declared at first use
TOPIC: Final = 2            # /topic/K
EXCHANGE: Final = 3         # /exchange/E/K
AMQ_QUEUE: Final = 4        # /amq/queue/N: must exist
TEMP_QUEUE: Final = 5       # /temp-queue/N: only in `reply-to`
REPLY_QUEUE: Final = 6      # /reply-queue/N: the only name that may hold slashes as they are


# ------------------------------------------------------------------------------------------------ MQTT and AMQP

def topic_to_key(topic: bytes) -> bytes:
    return topic.replace(b"/", b".")


def key_to_topic(key: bytes) -> bytes:
    """The topic that a message from elsewhere has for MQTT; `is_topic` says whether it may be sent."""
    return key.replace(b".", b"/")


def filter_to_pattern(topic_filter: str) -> str:
    return topic_filter.replace("/", ".").replace("+", "*")


def pattern_to_filter(pattern: str) -> str:
    """The filter for a binding pattern. MQTT has none for a `#` that is not last."""
    topic_filter = pattern.replace(".", "/").replace("*", "+")
    check_filter(topic_filter)
    return topic_filter


def is_topic(topic: bytes) -> bool:
    """May a message be published under this name? [MQTT-3.3.2-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2]"""
    if not topic or len(topic) > TOPIC_BYTES_MAX:
        return False
    if b"+" in topic or b"#" in topic or b"\0" in topic:
        return False
    if topic.isascii():
        return True
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_filter(topic_filter: str) -> None:
    if not topic_filter:
        raise InvalidArgument("a topic filter is empty")
    if "\0" in topic_filter:
        raise InvalidArgument("a topic filter contains a null character")
    if len(topic_filter) > TOPIC_BYTES_MAX or len(topic_filter.encode("utf-8", "surrogateescape")) > TOPIC_BYTES_MAX:
        raise InvalidArgument(f"a topic filter is longer than {TOPIC_BYTES_MAX} bytes")
    levels = topic_filter.split("/")
    if len(levels) > LEVELS_MAX:
        raise InvalidArgument(f"a topic filter has more than {LEVELS_MAX} levels")
    for at, level in enumerate(levels):
        if "#" in level and (level != "#" or at != len(levels) - 1):
            raise InvalidArgument(f"in the filter {topic_filter!r}, # is not the whole of the last level")     # [MQTT-4.7.1-1]
        if "+" in level and level != "+":
            raise InvalidArgument(f"in the filter {topic_filter!r}, + is not the whole of its level")          # [MQTT-4.7.1-2]


# ------------------------------------------------------------------------------------------------ STOMP

class Destination:
    """A STOMP destination taken apart: where a message for it is published, or what a subscription to it binds."""

    def __init__(self, kind: i64, exchange: str, routing_key: str) -> None:
        self.kind: i64 = kind
        self.exchange: str = exchange
        self.routing_key: str = routing_key


def parse_destination(text: str, topic_exchange: str = TOPIC_EXCHANGE) -> Destination:
    parts = text.split("/")
    if len(parts) == 1 and text:
        return Destination(QUEUE, "", unescape(text))
    if len(parts) > 1 and parts[0] == "":
        prefix = parts[1]
        rest = parts[2:]
        if prefix == "queue":
            return Destination(QUEUE, "", single(rest, "queue"))
        if prefix == "topic":
            return Destination(TOPIC, topic_exchange, single(rest, "topic"))
        if prefix == "exchange":
            return parse_exchange(rest)
        if prefix == "amq" and rest and rest[0] == "queue":
            return Destination(AMQ_QUEUE, "", single(rest[1:], "amqqueue"))
        if prefix == "temp-queue":
            return Destination(TEMP_QUEUE, "", single(rest, "temp-queue"))
        if prefix == "reply-queue" and rest:
            return Destination(REPLY_QUEUE, "", single(["/".join(rest)], "reply-queue"))
    raise InvalidArgument(f"Unknown destination\n'{text}' is not a known destination")


def parse_exchange(rest: list[str]) -> Destination:
    if not rest or not rest[0] or len(rest) > 2:
        raise invalid(rest, "exchange")
    return Destination(EXCHANGE, unescape(rest[0]), unescape(rest[1]) if len(rest) == 2 else "")


def single(rest: list[str], kind: str) -> str:
    if len(rest) != 1 or not rest[0]:
        raise invalid(rest, kind)
    return unescape(rest[0])


def invalid(rest: list[str], kind: str) -> InvalidArgument:
    path = "".join(["/" + part for part in rest])
    return InvalidArgument(f"'{path}' is not a valid {kind} destination\n")


def format_destination(exchange: bytes, routing_key: bytes, topic_exchange: bytes = b"amq.topic") -> str:
    """What a MESSAGE names as its destination: made from where it was published, whatever the subscription was called."""
    if not exchange:
        return "/queue/" + escape(routing_key)
    if exchange == topic_exchange:
        return "/topic/" + escape(routing_key)
    if not routing_key:
        return "/exchange/" + escape(exchange)
    return "/exchange/" + escape(exchange) + "/" + escape(routing_key)


def unescape(text: str) -> str:
    """Only the slash has an escape that is decoded; clients rely on every other percent sign being left alone."""
    return text.replace("%2F", "/")


def escape(name: bytes) -> str:
    out: list[str] = []
    for c in name:
        if c < 32 or c > 126 or c == 0x2F or c == 0x25:
            out.append(f"%{c:02X}")
        else:
            out.append(chr(c))
    return "".join(out)
