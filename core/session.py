"""One connection that has logged in: who, in which vhost, with which limits, and the ways it has found for its messages."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.access import Identity
from trilogue.core.limits import Quota
from trilogue.core.live import LiveSubscriber
from trilogue.core.shard import Route, Shard
from trilogue.core.topic import TopicPartition

PATHS_MAX: Final = 10_000


class Leg:
    """The queues of one shard that a path leads to, by message priority."""

    def __init__(self, shard: Shard, queues: list[int], limited: bool) -> None:
        self.shard: Shard = shard
        self.queues: list[int] = queues         # ids
        self.limited: bool = limited            # one of them may not take a message
        self.routes: dict[int, Route] = {}


class Path:
    """Where messages with one address go. Valid as long as routing and permissions stay as they are."""

    def __init__(self, version: i64, destinations: list[int]) -> None:
        self.version: i64 = version
        self.destinations: list[int] = destinations     # the router's integers
        self.legs: list[Leg] = []
        self.topics: list[list[TopicPartition]] = []
        self.live: list[LiveSubscriber] = []

    def routed(self) -> bool:
        return len(self.legs) > 0 or len(self.topics) > 0 or len(self.live) > 0


class Session:
    def __init__(self, id: i64, identity: Identity, vhost: str, quota: Quota, protocol: str, peer: str) -> None:
        self.id: i64 = id
        self.identity: Identity = identity
        self.vhost: str = vhost
        self.quota: Quota = quota
        self.protocol: str = protocol
        self.peer: str = peer
        self.paths: dict[tuple[bytes, bytes, bytes], Path] = {}
        self.closed: bool = False
