"""Who somebody is, and whether they may: the one place where both are decided, whatever the protocol.

Login has three steps, because a password hash takes 20 ms: `prepare` (on the loop), `Login.verify` (in a thread), `finish` (on the loop).
`authorise` is asked for every operation on a named thing; its answers are kept until users or permissions change (`version`).
What a caller remembers about an answer must be forgotten when `version` changes.
"""

from __future__ import annotations

import hmac
from typing import Final

from mypy_extensions import i64

from trilogue.core.directory import Directory
from trilogue.core.entities import in_vhost
from trilogue.core.errors import AccessRefused, AuthenticationFailed
from trilogue.core.passwords import ARGON2ID, NOBODY, hash_password, outdated, verify
from trilogue.core.patterns import NOTHING, Pattern, filled
from trilogue.core.ports import Scheduler
from trilogue.core.settings import AccessSettings

CONFIGURE: Final = 0
WRITE: Final = 1
READ: Final = 2
ACTIONS: Final = ["configure", "write", "read"]

A_QUEUE: Final = "queue"
AN_EXCHANGE: Final = "exchange"

DEFAULT_EXCHANGE_NAME: Final = "amq.default"        # what patterns see of the exchange without a name
FILLED_LENGTH_MAX: Final = 32_768                   # a client id that makes a pattern longer than this is allowed nothing


class Identity:
    """Somebody who has logged in. `client_id` is set by protocols that have one, before anything is authorised."""

    def __init__(self, user: str, tags: list[str], client_id: str = "", anonymous: bool = False) -> None:
        self.user: str = user
        self.tags: list[str] = tags
        self.client_id: str = client_id
        self.anonymous: bool = anonymous

    def has_tag(self, tag: str) -> bool:
        return tag in self.tags


class Login:
    """One attempt. `verify` may run in any thread: it uses only what it holds."""

    def __init__(self, user: str, password: str, algorithm: str, stored: str, known: bool, mark: bytes) -> None:
        self.user: str = user
        self.password: str = password
        self.algorithm: str = algorithm
        self.stored: str = stored
        self.known: bool = known        # is there a user who could log in from there?
        self.mark: bytes = mark         # what the credentials are remembered by
        self.verified: bool = False
        self.remembered: bool = False   # verified before, not long ago: no hash is needed
        self.rehashed: str = ""         # a better hash of the same password, to be stored (`Catalog.plan_user`)

    def verify(self) -> None:
        if self.remembered:
            return
        self.verified = verify(self.algorithm, self.stored, self.password) and self.known
        if self.algorithm != ARGON2ID and not self.verified:
            verify(ARGON2ID, NOBODY, self.password)     # as slow as for everybody else
        if self.verified and outdated(self.algorithm, self.stored):
            self.rehashed = hash_password(self.password)


class Remembered:
    def __init__(self, stored: str, until_ms: i64) -> None:
        self.stored: str = stored
        self.until_ms: i64 = until_ms


class Access:
    """`secret` is random and never leaves the process: remembered credentials are worthless without it."""

    def __init__(self, directory: Directory, settings: AccessSettings, scheduler: Scheduler, secret: bytes) -> None:
        self.directory: Directory = directory
        self.settings: AccessSettings = settings
        self.scheduler: Scheduler = scheduler
        self.secret: bytes = secret
        self.remembered: dict[bytes, Remembered] = {}
        self.decisions: dict[tuple[str, str, str, str, int], bool] = {}     # (user, vhost, kind, name, action)
        self.patterns: dict[str, Pattern] = {}
        self.decided_at: i64 = -1           # the access version that the last two belong to

    @property
    def version(self) -> int:
        """Rises with every change of users, permissions or limits."""
        return int(self.directory.access_version)

    # ------------------------------------------------------------------------------------------------ who

    def prepare(self, user: str, password: str, loopback: bool) -> Login:
        """Never raises and never tells whether the user exists."""
        found = self.directory.users.get(user)
        mark = self.mark(user, password)
        if found is None or not found.password_hash or (not loopback and user in self.settings.loopback_users):
            return Login(user, password, ARGON2ID, NOBODY, False, mark)
        login = Login(user, password, found.algorithm, found.password_hash, True, mark)
        before = self.remembered.get(mark)
        if before is not None and before.stored == found.password_hash and self.scheduler.now_ms() < before.until_ms:
            login.verified = True
            login.remembered = True
        return login

    def finish(self, login: Login) -> Identity:
        """Raises `AuthenticationFailed`, always with the same words, unless the login was verified and still holds."""
        found = self.directory.users.get(login.user)
        if not login.verified or found is None or found.password_hash != login.stored:
            raise AuthenticationFailed(f"login refused for user '{login.user}'")
        if not login.remembered:
            self.remember(login)
        return Identity(found.name, found.tags)

    def authenticate(self, user: str, password: str, loopback: bool) -> Identity:
        """All three steps at once, blocking: for tools and tests."""
        login = self.prepare(user, password, loopback)
        login.verify()
        return self.finish(login)

    def anonymous(self, loopback: bool) -> Identity:
        """Somebody without credentials acts as the configured user, if that is allowed from there."""
        found = self.directory.users.get(self.settings.anonymous_user)
        allowed = loopback or (self.settings.anonymous_remote and self.settings.anonymous_user not in self.settings.loopback_users)
        if found is None or not allowed:
            raise AuthenticationFailed("anonymous login refused")
        return Identity(found.name, found.tags, "", True)

    def certified(self, user: str, loopback: bool) -> Identity:
        """Somebody whose certificate names `user`; the listener has verified it."""
        found = self.directory.users.get(user)
        if found is None or (not loopback and user in self.settings.loopback_users):
            raise AuthenticationFailed(f"login refused for user '{user}'")
        return Identity(found.name, found.tags)

    def mark(self, user: str, password: str) -> bytes:
        name = user.encode("utf-8", "surrogatepass")
        message = len(name).to_bytes(4, "big") + name + password.encode("utf-8", "surrogatepass")
        return hmac.digest(self.secret, message, "sha256")

    def remember(self, login: Login) -> None:
        if len(self.remembered) >= self.settings.remembered_logins_max:
            self.remembered.clear()
        until_ms = self.scheduler.now_ms() + self.settings.remember_login_ms
        self.remembered[login.mark] = Remembered(login.stored, until_ms)

    # ------------------------------------------------------------------------------------------------ may they

    def enter(self, identity: Identity, vhost: str) -> None:
        """Raises `NotFound` or `AccessRefused` unless the vhost is there and the user has permissions in it."""
        self.directory.vhost(vhost)
        if (vhost, identity.user) not in self.directory.permissions:
            raise AccessRefused(f"access to vhost '{vhost}' refused for user '{identity.user}'")

    def authorise(self, identity: Identity, action: i64, vhost: str, kind: str, name: str, routing_key: str | None = None) -> None:
        """Raises `AccessRefused` unless `identity` may do `action` to the queue or exchange (`kind`) of that name.

        With a routing key, the topic permissions of a topic exchange are asked as well.
        """
        if not self.allowed(identity.user, action, vhost, kind, name):
            raise AccessRefused(f"{ACTIONS[action]} access to {in_vhost(kind, name, vhost)} refused for user '{identity.user}'")
        if routing_key is not None and not self.topic_allowed(identity, action, vhost, name, routing_key):
            raise AccessRefused(f"{ACTIONS[action]} access to topic '{routing_key}' in {in_vhost(kind, name, vhost)} "
                                f"refused for user '{identity.user}'")

    def allowed(self, user: str, action: i64, vhost: str, kind: str, name: str) -> bool:
        self.forget_outdated()
        key = (user, vhost, kind, name, int(action))
        known = self.decisions.get(key)
        if known is None:
            known = self.decide(user, action, vhost, kind, name)
            if len(self.decisions) >= self.settings.decisions_max:
                self.decisions.clear()
            self.decisions[key] = known
        return known

    def decide(self, user: str, action: i64, vhost: str, kind: str, name: str) -> bool:
        permission = self.directory.permissions.get((vhost, user))
        if permission is None:
            return False
        if action == CONFIGURE:
            pattern = permission.configure
        elif action == WRITE:
            pattern = permission.write
        else:
            pattern = permission.read
        subject = DEFAULT_EXCHANGE_NAME if kind == AN_EXCHANGE and not name else name
        return self.matches(pattern, subject)

    def topic_allowed(self, identity: Identity, action: i64, vhost: str, name: str, routing_key: str) -> bool:
        """Without a topic permission for this exchange everything is allowed; `configure` is never a matter of topics."""
        permission = self.directory.topic_permissions.get((vhost, identity.user, name))
        if permission is None or action == CONFIGURE:
            return True
        exchange = self.directory.find_exchange(vhost, name)
        if exchange is None or exchange.routing_type() != "topic":
            return True
        self.forget_outdated()
        template = permission.write if action == WRITE else permission.read
        pattern = filled(template, identity.user, vhost, identity.client_id)
        return len(pattern) <= FILLED_LENGTH_MAX and self.matches(pattern, routing_key)

    def matches(self, source: str, subject: str) -> bool:
        if not source:
            source = NOTHING
        pattern = self.patterns.get(source)
        if pattern is None:
            if len(self.patterns) >= self.settings.patterns_max:
                self.patterns.clear()
            pattern = Pattern(source)
            self.patterns[source] = pattern
        return pattern.finds(subject)

    def forget_outdated(self) -> None:
        if self.decided_at != self.directory.access_version:
            self.decided_at = self.directory.access_version
            self.decisions.clear()
            self.patterns.clear()
