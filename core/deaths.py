"""The notes that the broker keeps with a message: how often it was dead-lettered, where and why. CBOR, never shown raw to anybody."""

from __future__ import annotations

from typing import Any, Final

import cbor2
from mypy_extensions import i64

from trilogue.core.message import NOTES_BYTES_MAX
from trilogue.core.record import REASON_DELIVERY_LIMIT, REASON_EXPIRED, REASON_OVERFLOW, REASON_REJECTED

NAMES: Final = {REASON_EXPIRED: "expired", REASON_OVERFLOW: "maxlen", REASON_REJECTED: "rejected", REASON_DELIVERY_LIMIT: "delivery_limit"}

# Positions in one death.
QUEUE: Final = 0
REASON: Final = 1
COUNT: Final = 2
TIME_MS: Final = 3
EXCHANGE: Final = 4
ROUTING_KEYS: Final = 5


def deaths_of(notes: bytes) -> list[list[Any]]:
    """Newest first: [queue, reason, count, time of the first, exchange, routing keys]."""
    if not notes:
        return []
    deaths: list[list[Any]] = cbor2.loads(notes).get("deaths", [])
    return deaths


def first_death(notes: bytes) -> list[Any]:
    """[queue, reason, exchange] of the first time, which never changes."""
    first: list[Any] = cbor2.loads(notes).get("first", []) if notes else []
    return first


def delay_of(notes: bytes) -> int:
    """For how long it was kept back before it was routed; 0: not at all."""
    return int(cbor2.loads(notes).get("delay", 0)) if notes else 0


def rerouted(notes: bytes) -> bool:
    """Was it dead-lettered under a key of the queue's choice? Then the keys it was published with no longer count."""
    return bool(cbor2.loads(notes).get("rerouted", False)) if notes else False


def add_death(notes: bytes, queue: str, reason: i64, time_ms: i64, exchange: bytes, routing_keys: list[bytes], rerouted: bool) -> bytes:
    """The notes after one more death. Deaths of the same queue and reason are counted together."""
    kept: dict[str, Any] = cbor2.loads(notes) if notes else {}
    name = NAMES[reason]
    deaths: list[list[Any]] = kept.get("deaths", [])
    count = 1
    first_ms = int(time_ms)
    for k in range(len(deaths)):
        if deaths[k][QUEUE] == queue and deaths[k][REASON] == name:
            count = deaths[k][COUNT] + 1
            first_ms = deaths[k][TIME_MS]
            del deaths[k]
            break
    deaths.insert(0, [queue, name, count, first_ms, exchange, routing_keys])
    kept["deaths"] = deaths
    if rerouted:
        kept["rerouted"] = True
    if "first" not in kept:
        kept["first"] = [queue, name, exchange]
    packed = cbor2.dumps(kept)
    while len(packed) > NOTES_BYTES_MAX:
        deaths.pop()
        packed = cbor2.dumps(kept)
    return packed


def goes_in_circles(notes: bytes, queue: str) -> bool:
    """Was it dead-lettered by this queue before, without anybody rejecting it since? Then it is dropped."""
    for death in deaths_of(notes):
        if death[REASON] == "rejected":
            return False
        if death[QUEUE] == queue:
            return True
    return False
