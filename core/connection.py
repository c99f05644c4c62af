"""One client's connection, without its protocol: what every frontend over TCP owes the broker and the client.

* Output is corked: what one turn of the loop produces leaves in one write.
* A client that does not read is fed no further than its buffer; `room_again` says when it is.
* A client that publishes more than the disk takes is not read. If it holds unacknowledged deliveries it is read on, so that it can acknowledge
  them, and what it publishes meanwhile is parked, up to a limit or one message (RULES 30).
* Before it has logged in, a client gets little time and little memory, and there may only be so many of its kind.

It has the methods of `asyncio.Protocol` without inheriting from it, since a compiled class cannot. Owned by the event loop.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from trilogue.core.access import Identity, Login
from trilogue.core.errors import BrokerError
from trilogue.core.flusher import Corked
from trilogue.core.frontend import Context, LoginLate, LoginWaiter, Peer, StreamFrontend
from trilogue.core.limits import Quota
from trilogue.core.passwords import ARGON2ID
from trilogue.core.ports import Callback, Promise, Timer
from trilogue.core.session import Session

SMALL_BYTES: Final = 4_096

logger = structlog.get_logger("frontend")


class Uncork(Corked):
    """The flusher's handle on a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection = connection

    def uncork(self) -> None:
        self.connection.uncork()


class Waiter(LoginWaiter):
    def __init__(self, connection: Connection, vhost: str, protocol: str) -> None:
        self.connection: Connection = connection
        self.vhost: str = vhost
        self.protocol: str = protocol

    def verified(self, login: Login) -> None:
        self.connection.verified(login, self.vhost, self.protocol)


class Verified(Callback):
    """A login that needs no hash, answered on the next turn like any other."""

    def __init__(self, waiter: Waiter, login: Login) -> None:
        self.waiter: Waiter = waiter
        self.login: Login = login

    def fire(self) -> None:
        self.waiter.verified(self.login)


class Leave(Promise):
    def __init__(self, connection: Connection) -> None:
        self.connection: Connection = connection

    def kept(self) -> None:
        self.connection.close()

    def broken(self, reason: str) -> None:
        self.kept()


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Peer):
    def __init__(self, frontend: StreamFrontend) -> None:
        self.frontend: StreamFrontend = frontend
        self.context: Context = frontend.context
        self.transport: Any = None
        self.peer: str = ""
        self.loopback: bool = False
        self.quota: Quota | None = None
        self.session: Session | None = None
        self.login_timer: Timer | None = None
        self.early: i64 = 0                 # bytes received before a login began
        self.verifying: bool = False
        self.leaving: bool = False          # nothing more is read
        self.closed: bool = False           # nothing more will be sent or handled
        self.handle: Uncork = Uncork(self)
        self.w: BytesWriter = BytesWriter()     # what leaves with the rest of this turn
        self.corked: bool = False
        self.writable: bool = True          # false while the client does not read what was written
        self.starved: bool = False          # somebody asked for room and there was none
        self.holds: i64 = 0                 # publishers of this connection that are held
        self.reading: bool = True
        self.parked: list[object] = []
        self.parked_sizes: list[int] = []
        self.parked_bytes: i64 = 0
        self.unparking: bool = False

    # -------------------------------------------------------------------------------------------- what a protocol says

    def opened(self) -> None:
        """Connected, and not refused."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """The next bytes. After `log_in` none come until it is decided; what is left of these must be kept by the protocol till then."""

    def turned_away(self, error: BrokerError) -> None:
        """The broker takes nobody now. A protocol that can say so calls `send`; then the connection is closed."""

    def logged_in(self, session: Session) -> None:
        """`log_in` succeeded."""

    def login_failed(self, error: BrokerError) -> None:
        """`log_in` failed. The protocol answers and closes."""
        self.close()

    def room_again(self) -> None:
        """There is room for deliveries again: pump."""

    def unacknowledged(self) -> i64:
        """Deliveries that the client has not answered for."""
        return 0

    def unpark(self, item: object) -> None:
        """Do now what was parked."""

    def lost(self) -> None:
        """The connection is gone: detach consumers, give back what they hold, forget publishers. The session is closed afterwards."""

    def going_down(self) -> None:
        """Read nothing more, and close when everything that was sent before is on disk and confirmed."""
        self.leaving = True
        self.adjust_reading()
        self.context.broker.after(Leave(self))

    # -------------------------------------------------------------------------------------------- asyncio's side

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        context = self.context
        self.frontend.peers[self] = None
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = f"{name[0]}:{name[1]}"
            self.loopback = is_loopback(str(name[0]))
        try:
            context.door.enter(transport.get_extra_info("socket").fileno())
            self.quota = context.broker.arrive()
        except BrokerError as error:
            logger.warning("connection refused", listener=context.listener, peer=self.peer, reason=str(error))
            self.turned_away(error)
            self.close()
            return
        # One half may lie there, the other half in `w`.
        transport.set_write_buffer_limits(high=int(context.flow.consumer_buffer_bytes >> 1))
        limit_ms = context.broker.limits.settings.login_ms_max
        self.login_timer = context.broker.scheduler.call_later(limit_ms / 1000.0, LoginLate(self))
        self.opened()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        if self.session is None and not self.verifying:
            self.early += len(data)
        self.received(data)
        if self.session is None and not self.verifying and not self.closed:
            limit = self.context.broker.limits.settings.unauthenticated_bytes_max
            if self.early > limit:
                logger.warning("connection refused", listener=self.context.listener, peer=self.peer,
                               reason=f"more than {limit} bytes without a login")
                self.abort()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.feed()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.w = BytesWriter()
        self.parked = []
        self.frontend.peers.pop(self, None)
        self.stop_login_timer()
        session = self.session
        quota = self.quota
        try:
            self.lost()
        finally:
            if session is not None:
                self.context.broker.close(session)
            elif quota is not None:
                quota.close()

    # -------------------------------------------------------------------------------------------- output

    def send(self, data: bytes) -> None:
        """Have bytes leave with the rest of this turn."""
        if self.closed:
            return
        self.w.write(data)
        self.wrote()

    def wrote(self) -> None:
        """Something was put into `w`."""
        if not self.corked:
            self.corked = True
            self.context.broker.flusher.cork(self.handle)

    def has_room(self) -> bool:
        """May more be delivered? If not, `room_again` follows."""
        if self.writable and len(self.w) < self.context.flow.consumer_buffer_bytes >> 1 and not self.closed:
            return True
        self.starved = True
        return False

    def uncork(self) -> None:
        self.corked = False
        n: i64 = len(self.w)
        if n:
            data = self.w.getvalue()
            if n <= SMALL_BYTES:
                self.w = BytesWriter()      # an idle connection keeps no buffer
            else:
                self.w.truncate(0)
            self.transport.write(data)
        if self.holds:
            self.adjust_reading()
        if self.writable:
            self.feed()

    def feed(self) -> None:
        if self.starved and not self.closed:
            self.starved = False
            self.room_again()

    def close(self) -> None:
        """Send what is left, then close."""
        if not self.closed:
            self.closed = True
            if len(self.w):
                self.transport.write(self.w.getvalue())
                self.w = BytesWriter()
            self.transport.close()

    def abort(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    # -------------------------------------------------------------------------------------------- input

    def hold(self) -> None:
        """One more of the connection's publishers is held."""
        self.holds += 1
        self.adjust_reading()

    def release(self) -> None:
        self.holds -= 1
        assert self.holds >= 0
        if self.holds == 0:
            self.unpark_all()
        self.adjust_reading()

    def must_park(self) -> bool:
        """Must what comes in wait? Everything that publishes, and all that may not overtake it."""
        return (self.holds > 0 or len(self.parked) > 0) and not self.unparking

    def park(self, item: object, size: i64) -> None:
        self.parked.append(item)
        self.parked_sizes.append(int(size))
        self.parked_bytes += size
        self.adjust_reading()

    def unpark_all(self) -> None:
        done: i64 = 0
        self.unparking = True
        try:
            while done < len(self.parked) and self.holds == 0 and not self.closed:
                self.parked_bytes -= self.parked_sizes[done]
                done += 1
                self.unpark(self.parked[done - 1])
        finally:
            self.unparking = False
            del self.parked[:done]
            del self.parked_sizes[:done]

    def adjust_reading(self) -> None:
        if self.closed or self.transport.is_closing():
            return
        wanted = not self.verifying and not self.leaving
        if self.holds > 0:
            # Whoever has something to acknowledge is read on, or a full disk would never heal.
            wanted = wanted and self.unacknowledged() > 0 and self.parked_bytes < self.context.flow.parked_bytes_max
        if wanted != self.reading:
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # -------------------------------------------------------------------------------------------- login

    def log_in(self, user: str, password: str, vhost: str, protocol: str) -> None:
        """Check a password, without making anybody wait for the hash. `logged_in` or `login_failed` follows, never at once."""
        broker = self.context.broker
        login = broker.access.prepare(user, password, self.loopback)
        waiter = Waiter(self, vhost, protocol)
        self.verifying = True
        self.adjust_reading()
        if login.remembered:
            broker.scheduler.call_soon(Verified(waiter, login))
        else:
            self.context.verifier.verify(login, waiter)

    def verified(self, login: Login, vhost: str, protocol: str) -> None:
        if self.closed:
            return
        self.verifying = False
        try:
            identity = self.context.broker.access.finish(login)
            if login.rehashed:
                self.keep_hash(login)
        except BrokerError as error:
            self.refuse_login(error)
        else:
            self.enter(identity, vhost, protocol)
        self.adjust_reading()

    def keep_hash(self, login: Login) -> None:
        """Store the better hash that the login made; if that cannot be now, the next login will try again."""
        catalog = self.context.broker.catalog
        try:
            self.context.administration.change(catalog.plan_user(login.user, login.rehashed, ARGON2ID, catalog.user(login.user).tags))
        except BrokerError as error:
            logger.warning("password hash not renewed", user=login.user, reason=str(error))

    def enter(self, identity: Identity, vhost: str, protocol: str) -> None:
        """Somebody is known, by a password or otherwise: open their session."""
        quota = self.quota
        assert quota is not None and self.session is None
        try:
            session = self.context.broker.open(identity, vhost, quota, protocol, self.peer)
        except BrokerError as error:
            self.refuse_login(error)
            return
        self.session = session
        self.stop_login_timer()
        self.logged_in(session)

    def refuse_login(self, error: BrokerError) -> None:
        logger.warning("login refused", listener=self.context.listener, peer=self.peer, reason=str(error))
        self.login_failed(error)

    def stop_login_timer(self) -> None:
        timer = self.login_timer
        if timer is not None:
            timer.cancel()
            self.login_timer = None


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")
