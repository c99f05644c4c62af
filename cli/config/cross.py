"""What must hold between options. Each check reads a configuration that is right field by field."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from trilogue.config.check import Checker, address_of
from trilogue.config.model import FRONTENDS, Config, Listener
from trilogue.config.problems import Path, did_you_mean

PLUGIN = re.compile(r"[\w-]+=\w+(\.\w+)*:\w+")
ANY_HOST = ("0.0.0.0", "::", "*")
IDENTITY = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "topics": ("vhost", "name"),
    "policies": ("vhost", "name"),
}


def check(config: Config, checker: Checker, frontends: Iterable[str]) -> None:
    plugins = check_plugins(config, checker)
    check_listeners(config, checker, sorted({*FRONTENDS, *frontends, *plugins}))
    check_ports(config.listeners, checker)
    check_coordination(config, checker)
    check_sizes(config, checker)
    check_users(config, checker)
    for name, identity in IDENTITY.items():
        check_unique(name, identity, getattr(config, name), checker)


def check_plugins(config: Config, checker: Checker) -> list[str]:
    """The names of the frontends that the configuration itself brings."""
    for index, plugin in enumerate(config.node.plugins):
        if not PLUGIN.fullmatch(plugin):
            checker.complain(("node", "plugins", index), f'"{plugin}" is not name=package.module:Class')
    return [plugin.partition("=")[0] for plugin in config.node.plugins]


def check_listeners(config: Config, checker: Checker, frontends: Sequence[str]) -> None:
    for name, listener in config.listeners.items():
        path: Path = ("listeners", name)
        if listener.frontend and listener.frontend not in frontends:
            checker.complain((*path, "frontend"), f'there is no frontend "{listener.frontend}"', did_you_mean(listener.frontend, frontends))
        elif not listener.frontend and name not in frontends:
            hint = did_you_mean(name, frontends) or f"known are {', '.join(frontends)}; another name needs a frontend option"
            checker.complain(path, "is not the name of a frontend", hint, key=True)
        if listener.tls and listener.tls.client_cert != "none" and not listener.tls.client_ca:
            checker.complain((*path, "tls", "client_cert"), f'"{listener.tls.client_cert}" needs client_ca to check certificates against')


def check_ports(listeners: dict[str, Listener], checker: Checker) -> None:
    for (first, one), (second, other) in itertools.combinations(listeners.items(), 2):
        a, b = one.bind, other.bind
        if a and b and a.port and a.port == b.port and (a.host == b.host or a.host in ANY_HOST or b.host in ANY_HOST):
            checker.complain(("listeners", second, "bind"), f"{b} is taken by listeners.{first}")


def check_coordination(config: Config, checker: Checker) -> None:
    for index, host in enumerate(config.coordination.hosts):
        address = address_of(host)
        if address is None or not 0 < address.port < 65_536:
            checker.complain(("coordination", "hosts", index), f'"{host}" is not host:port')
    if not config.coordination.path.startswith("/"):
        checker.complain(("coordination", "path"), "must begin with /")
    if config.coordination.kind != "zookeeper":
        return
    if not config.coordination.hosts:
        checker.complain(("coordination", "kind"), '"zookeeper" needs coordination.hosts', 'for example hosts = ["127.0.0.1:2181"]')
    replication = config.listeners.get("replication")
    if replication is None or replication.bind is None:
        checker.complain(("coordination", "kind"), '"zookeeper" needs listeners.replication.bind, where the other nodes connect')


def check_sizes(config: Config, checker: Checker) -> None:
    storage, limits = config.storage, config.limits
    # Written as pairs because each is the same mistake: something that could never be stored or sent.
    pairs: tuple[tuple[Path, int, str, int], ...] = (
        (("limits", "batch_bytes_max"), limits.batch_bytes_max, "limits.message_bytes_max", limits.message_bytes_max),
        (("storage", "segment_bytes"), storage.segment_bytes, "limits.message_bytes_max", limits.message_bytes_max),
        (("storage", "unsynced_bytes_max"), storage.unsynced_bytes_max, "limits.message_bytes_max", limits.message_bytes_max),
    )
    for path, value, other, least in pairs:
        if value < least:
            checker.complain(path, f"{value} is less than {other}, {least}")


def check_users(config: Config, checker: Checker) -> None:
    for index, user in enumerate(config.users):
        if user.password and user.password_hash:
            checker.complain(("users", index), "has both password and password_hash", key=True)
    if config.auth.anonymous == "always" and config.auth.anonymous_user == "guest" and config.auth.guest:
        message = '"always" with anonymous_user "guest" would give everybody everything'
        checker.complain(("auth", "anonymous"), message, "name a user with few permissions")


def check_unique(name: str, identity: tuple[str, ...], items: Sequence[Any], checker: Checker) -> None:
    seen: dict[tuple[str, ...], int] = {}
    for index, item in enumerate(items):
        key = tuple(getattr(item, part) for part in identity)
        first = seen.setdefault(key, index)
        if first != index and all(key):
            checker.complain((name, index), f'{" ".join(identity)} {", ".join(map(repr, key))} is defined twice (also {name}[{first}])', key=True)
