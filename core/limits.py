"""One set of limits for every protocol: who may take one more of what.

A connection has a `Quota` from the moment it is accepted until it is closed; everything it takes is counted there, and given back at once when it
goes. Owned by the event loop.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.directory import Directory
from trilogue.core.errors import LimitExceeded
from trilogue.core.settings import LimitSettings

CHANNEL: Final = 0
CONSUMER: Final = 1
EXCLUSIVE_QUEUE: Final = 2
UNACKNOWLEDGED: Final = 3
KINDS: Final = ["channels", "consumers", "exclusive queues", "unacknowledged messages"]


class Limits:
    """The node's counters."""

    def __init__(self, directory: Directory, settings: LimitSettings) -> None:
        self.directory: Directory = directory
        self.connections: i64 = 0
        self.unauthenticated: i64 = 0
        self.per_user: dict[str, int] = {}
        self.per_vhost: dict[str, int] = {}
        self.channels_per_user: dict[str, int] = {}
        self.set(settings)

    def set(self, settings: LimitSettings) -> None:
        """Other settings from now on. Nothing is taken away from anybody."""
        self.settings: LimitSettings = settings
        self.message_bytes_max: i64 = settings.message_bytes_max
        self.most: list[int] = [settings.channels_per_connection_max, settings.consumers_per_connection_max,
                                settings.exclusive_queues_per_connection_max, settings.unacknowledged_per_connection_max]

    def arrive(self) -> Quota:
        """A connection was accepted; nobody has logged in yet."""
        refuse_at(self.connections, self.settings.connections_max, "node connection limit")
        refuse_at(self.unauthenticated, self.settings.unauthenticated_connections_max, "limit of connections without login")
        self.connections += 1
        self.unauthenticated += 1
        return Quota(self)

    def check_message(self, size: i64) -> None:
        if size > self.message_bytes_max >= 0:
            raise LimitExceeded(f"message size {size} is larger than configured max size {self.message_bytes_max}")

    def user_limit(self, user: str, key: str, otherwise: int) -> int:
        found = self.directory.users.get(user)
        return otherwise if found is None else found.limits.get(key, otherwise)

    def vhost_limit(self, vhost: str, key: str, otherwise: int) -> int:
        found = self.directory.vhosts.get(vhost)
        return otherwise if found is None else found.limits.get(key, otherwise)


class Quota:
    """What one connection has taken."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Limits = limits
        self.user: str = ""
        self.vhost: str = ""
        self.admitted: bool = False
        self.closed: bool = False
        self.taken: list[int] = [0, 0, 0, 0]

    def admit(self, user: str, vhost: str) -> None:
        """The connection has logged in. Once in its life."""
        assert not self.admitted and not self.closed
        limits = self.limits
        settings = limits.settings
        most = limits.vhost_limit(vhost, "max-connections", settings.connections_per_vhost_max)
        refuse_at(limits.per_vhost.get(vhost, 0), most, f"access to vhost '{vhost}' refused for user '{user}': vhost connection limit")
        most = limits.user_limit(user, "max-connections", settings.connections_per_user_max)
        refuse_at(limits.per_user.get(user, 0), most, f"connection refused for user '{user}': user connection limit")
        add(limits.per_vhost, vhost, 1)
        add(limits.per_user, user, 1)
        limits.unauthenticated -= 1
        self.user = user
        self.vhost = vhost
        self.admitted = True

    def take(self, kind: i64, count: i64 = 1) -> None:
        assert self.admitted and not self.closed
        most: i64 = self.limits.most[kind]
        if most >= 0 and self.taken[kind] + count > most:
            raise LimitExceeded(f"number of {KINDS[kind]} opened ({self.taken[kind]}) has reached the limit of the connection ({most})")
        if kind == CHANNEL:
            self.take_channels(count)
        self.taken[kind] += int(count)

    def take_channels(self, count: i64) -> None:
        limits = self.limits
        most = limits.user_limit(self.user, "max-channels", limits.settings.channels_per_user_max)
        if 0 <= most < limits.channels_per_user.get(self.user, 0) + count:
            raise LimitExceeded(f"number of channels opened for user '{self.user}' has reached the maximum allowed user limit of ({most})")
        add(limits.channels_per_user, self.user, int(count))

    def give(self, kind: i64, count: i64 = 1) -> None:
        if self.closed:
            return      # everything went back when it was closed
        assert self.taken[kind] >= count
        self.taken[kind] -= int(count)
        if kind == CHANNEL:
            add(self.limits.channels_per_user, self.user, -int(count))

    def close(self) -> None:
        """The connection is gone: everything goes back. May be repeated."""
        if self.closed:
            return
        limits = self.limits
        limits.connections -= 1
        if self.admitted:
            add(limits.per_vhost, self.vhost, -1)
            add(limits.per_user, self.user, -1)
            add(limits.channels_per_user, self.user, -self.taken[CHANNEL])
        else:
            limits.unauthenticated -= 1
        self.taken = [0, 0, 0, 0]
        self.closed = True


def refuse_at(present: i64, most: i64, what: str) -> None:
    if 0 <= most <= present:
        raise LimitExceeded(f"{what} ({most}) is reached")


def add(counters: dict[str, int], name: str, change: int) -> None:
    """Names come from clients, so a counter at zero does not stay."""
    value = counters.get(name, 0) + change
    assert value >= 0
    if value:
        counters[name] = value
    else:
        counters.pop(name, None)
