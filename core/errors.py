"""Three kinds of failure. The peer broke the rules: `PeerError`. The world failed: `OperatingError`. We have a bug: `assert`, never caught.

Each frontend has one table from these classes to its own wire codes, and a test checks that every class is in every table.
"""


class BrokerError(Exception):
    """The root of all errors that the core raises on purpose. `retry` says whether the same call may succeed later."""

    retry = False


class PeerError(BrokerError):
    """The peer asked for something it may not have. Its request fails; nothing else does."""


class NotFound(PeerError):
    """A queue, exchange, topic, vhost or user of that name does not exist."""


class PreconditionFailed(PeerError):
    """It exists, but not with these properties, or it is not in the state that the request requires."""


class InvalidArgument(PeerError):
    """An argument has a value or a type that can never be accepted."""


class AccessRefused(PeerError):
    """The user may not do this here."""


class AuthenticationFailed(PeerError):
    """Unknown user, wrong password, or a user that may not log in from there. Deliberately one class for all three."""


class ResourceLocked(PeerError):
    """Another connection has it exclusively."""


class LimitExceeded(PeerError):
    """A configured limit (connections, queues, consumers, message size, …) would be passed."""


class NotSupported(PeerError):
    """A correct request for something that this object cannot do, such as `get` on a topic."""


class OperatingError(BrokerError):
    """Disk, coordinator or a peer node failed. The request may be retried when the cause is gone."""

    retry = True


class Unavailable(OperatingError):
    """The partition is not served here now: stopped after an I/O error, still recovering, or led elsewhere."""


class StoreError(OperatingError):
    """The disk refused a write, a sync or a read."""


class Corrupt(OperatingError):
    """Stored bytes contradict their checksum or each other. Never served, never repaired silently."""

    retry = False


class FormatTooNew(OperatingError):
    """The data directory was written by a newer version."""

    retry = False


class DataDirInUse(OperatingError):
    """Another process holds the data directory."""
