"""The interface of a frontend: what serves one protocol on one listener, ours or a third party's.

A frontend is a class that an entry point in the group `trilogue.frontends` names (or `node.plugins` in the configuration). For each
listener that asks for it one is made, with a `Context`: the core, as far as frontends may see it, and the listener's own settings. What it
does with it is its own business; `StreamFrontend` and `core/connection.py` have what every protocol over TCP needs.

Called on the event loop only. The order is `start`, `stop`, `drain`, `close`; the last may come at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, AbstractServer
from ssl import SSLContext
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from trilogue.core.access import Login
from trilogue.core.administration import Administration
from trilogue.core.broker import Broker
from trilogue.core.errors import LimitExceeded
from trilogue.core.health import Health
from trilogue.core.ports import Callback, Lens

BACKLOG: Final = 1_024


@mypyc_attr(allow_interpreted_subclasses=True)
class LoginWaiter(ABC):
    @abstractmethod
    def verified(self, login: Login) -> None:
        """`Login.verify` has run; the waiter may be gone meanwhile, and must know that itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Verifier(ABC):
    """Runs `Login.verify` in a thread and comes back on the loop; implemented by `cli/loop.py`."""

    @abstractmethod
    def verify(self, login: Login, waiter: LoginWaiter) -> None: ...


class Door:
    """Refuses connections while descriptors are still left for log files. The system gives out the lowest free number, so the number of a new
    descriptor tells how many are in use."""

    def __init__(self, descriptors_max: i64) -> None:
        self.descriptors_max: i64 = descriptors_max
        self.refused: i64 = 0

    def enter(self, descriptor: i64) -> None:
        if descriptor >= self.descriptors_max >= 0:
            self.refused += 1
            raise LimitExceeded(f"descriptor limit: connections may use {self.descriptors_max}")


class FlowSettings:
    """How much may wait for one connection. Shared by all of them, and changed by a reload."""

    def __init__(self, consumer_buffer_bytes: i64, parked_bytes_max: i64) -> None:
        self.consumer_buffer_bytes: i64 = consumer_buffer_bytes     # unread output at which a consumer is fed no further
        self.parked_bytes_max: i64 = parked_bytes_max               # publishes kept for a held connection that must be able to acknowledge


class Context:
    """What a frontend is given. `vhost` is for clients that name none; `options` are the listener's own, as the configuration has them."""

    def __init__(self, listener: str, broker: Broker, administration: Administration, health: Health, loop: AbstractEventLoop, verifier: Verifier,
                 door: Door, flow: FlowSettings, vhost: str, options: dict[str, object], tls: SSLContext | None) -> None:
        self.listener: str = listener
        self.broker: Broker = broker
        self.administration: Administration = administration
        self.health: Health = health
        self.loop: AbstractEventLoop = loop
        self.verifier: Verifier = verifier
        self.door: Door = door
        self.flow: FlowSettings = flow
        self.vhost: str = vhost
        self.options: dict[str, object] = options
        self.tls: SSLContext | None = tls


@mypyc_attr(allow_interpreted_subclasses=True)
class Frontend(ABC):
    def __init__(self, context: Context) -> None:
        self.context: Context = context

    @staticmethod
    def lenses() -> list[tuple[int, Lens]]:
        """(origin, lens) for the spans that this frontend makes. Used whether or not anybody listens: stored messages outlive listeners."""
        return []

    @abstractmethod
    async def start(self, host: str, port: int) -> int:
        """Listen; returns the real port. `OSError` if that cannot be."""

    @abstractmethod
    def stop(self) -> None:
        """Accept nobody any more; those who are there stay."""

    @abstractmethod
    def drain(self) -> None:
        """Ask everybody to leave, as politely as the protocol can."""

    @abstractmethod
    def clients(self) -> int:
        """How many are still there."""

    @abstractmethod
    async def close(self) -> None:
        """Cut whoever is left off, and let go of the port."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer(ABC):
    """One connection, as its frontend sees it: `core/connection.py` has the one to build on."""

    @abstractmethod
    def going_down(self) -> None:
        """The broker is going down: take leave, and close as soon as nothing is owed to the client."""

    @abstractmethod
    def abort(self) -> None:
        """Cut the connection off now."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamFrontend(Frontend):
    """A frontend whose clients come by TCP. A subclass only says what a connection is."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.server: AbstractServer | None = None
        self.peers: dict[Peer, None] = {}

    @abstractmethod
    def connection(self) -> Peer:
        """A connection, not yet connected. It has the methods of `asyncio.Protocol`."""

    async def start(self, host: str, port: int) -> int:
        context = self.context
        timeout_s: float | None = None
        if context.tls is not None:
            timeout_s = context.broker.limits.settings.tls_handshake_ms_max / 1000.0
        factory: Any = self.connection
        server: Any = await context.loop.create_server(factory, host, port, ssl=context.tls, backlog=BACKLOG, ssl_handshake_timeout=timeout_s)
        self.server = server
        name: tuple[Any, ...] = server.sockets[0].getsockname()
        return int(name[1])

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()

    def drain(self) -> None:
        for peer in list(self.peers):
            peer.going_down()

    def clients(self) -> int:
        return len(self.peers)

    async def close(self) -> None:
        self.stop()
        for peer in list(self.peers):
            peer.abort()


class LoginLate(Callback):
    """The moment by which a client must have logged in."""

    def __init__(self, peer: Peer) -> None:
        self.peer: Peer = peer

    def fire(self) -> None:
        self.peer.abort()
