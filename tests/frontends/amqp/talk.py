"""An AMQP client that says exactly what a test tells it to, and hears every frame: pamqp on a blocking socket. And the node it talks to."""

from __future__ import annotations

import pathlib
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from pamqp import body, commands, frame, header, heartbeat

from tests.cli.server import PATIENCE_S, Embedded
from trilogue.core.passwords import ARGON2ID, hash_password

CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True, "connection.blocked": True, "publisher_confirms": True,
                "basic.nack": True}


def made(kind: type[Any], **fields: Any) -> Any:
    """A method that says what pamqp, which knows fewer names than there are, would not."""
    command = type(kind.__name__, (kind,), {"__slots__": kind.__slots__, "validate": unchecked})()
    for name, value in fields.items():
        setattr(command, name, value)
    return command


def unchecked(command: Any) -> None:
    """Let it pass."""


def method_of(found: Any) -> Any:
    return found.method if isinstance(found, Message) else found


class Message:
    """A delivery, an answer to a get, or a return, with its content."""

    def __init__(self, method: Any, properties: Any, content: bytes) -> None:
        self.method = method
        self.properties = properties
        self.body = content
        self.headers: dict[str, Any] = properties.headers or {}

    def __repr__(self) -> str:
        return f"Message({self.method!r}, {self.headers!r}, {self.body!r})"


class Closed(Exception):
    """The server closed the channel or the connection, and said why."""

    def __init__(self, command: Any) -> None:
        super().__init__(f"{command.reply_code} {command.reply_text}")
        self.code = command.reply_code
        self.text = command.reply_text
        self.connection = isinstance(command, commands.Connection.Close)
        self.method = (command.class_id, command.method_id)


class Talk:
    def __init__(self, address: str, user: str = "guest", password: str = "guest", vhost: str = "/", capabilities: dict[str, Any] | None = None,
                 heartbeat: int = 0, frame_max: int = 131_072, mechanism: str = "PLAIN", response: str | None = None,
                 tls: ssl.SSLContext | None = None, login: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self.socket: socket.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
        self.rest = b""
        self.waiting: list[tuple[int, Any]] = []        # heard, and not asked for yet
        self.frame_max = frame_max
        self.heartbeats = 0
        if login:
            self.socket.sendall(b"AMQP\x00\x00\x09\x01")
            self.start = self.hear(commands.Connection.Start, 0)
            self.say(commands.Connection.StartOk({"capabilities": CAPABILITIES if capabilities is None else capabilities}, mechanism,
                                                 f"\0{user}\0{password}" if response is None else response, "en_US"), 0)
            self.tune = self.hear(commands.Connection.Tune, 0)
            self.say(commands.Connection.TuneOk(self.tune.channel_max, frame_max, heartbeat), 0)
            self.say(commands.Connection.Open(vhost), 0)
            self.hear(commands.Connection.OpenOk, 0)

    # ---------------------------------------------------------------- out

    def say(self, command: Any, channel: int = 1) -> None:
        self.socket.sendall(frame.marshal(command, channel))

    def channel(self, number: int = 1) -> Talk:
        self.say(commands.Channel.Open(), number)
        self.hear(commands.Channel.OpenOk, number)
        return self

    def ask(self, command: Any, answer: type[Any], channel: int = 1) -> Any:
        self.say(command, channel)
        return self.hear(answer, channel)

    def publish(self, exchange: str, key: str, content: bytes = b"", channel: int = 1, mandatory: bool = False, immediate: bool = False,
                **properties: Any) -> None:
        self.socket.sendall(self.publish_frames(exchange, key, content, channel, mandatory, immediate, **properties))

    def publish_frames(self, exchange: str, key: str, content: bytes = b"", channel: int = 1, mandatory: bool = False, immediate: bool = False,
                       **properties: Any) -> bytes:
        head = header.ContentHeader(0, len(content), commands.Basic.Properties(**properties))
        method = made(commands.Basic.Publish, exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate)
        data = frame.marshal(method, channel) + frame.marshal(head, channel)
        step = self.frame_max - 8
        return data + b"".join(frame.marshal(body.ContentBody(content[at:at + step]), channel) for at in range(0, len(content), step))

    # ---------------------------------------------------------------- in

    def next(self) -> tuple[int, Any]:
        """The next frame, whatever it is; heartbeats are only counted."""
        while True:
            if len(self.rest) >= 7:
                size = int.from_bytes(self.rest[3:7], "big") + 8
                if len(self.rest) >= size:
                    _, channel, found = frame.unmarshal(self.rest[:size])
                    self.rest = self.rest[size:]
                    if isinstance(found, heartbeat.Heartbeat):
                        self.heartbeats += 1
                        continue
                    return channel, found
            more = self.socket.recv(65_536)
            if not more:
                raise EOFError("the server closed the connection")
            self.rest += more

    def hear(self, kind: type[Any], channel: int = 1) -> Any:
        """The next frame of a kind on a channel, with its content if it has some. What comes before it waits; a close is raised."""
        for k, (number, found) in enumerate(self.waiting):
            if number == channel and isinstance(method_of(found), kind):
                del self.waiting[k]
                return found
        while True:
            number, found = self.next()
            if isinstance(found, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return):
                found = self.with_content(found)
            if number == channel and isinstance(method_of(found), kind):
                return found
            if isinstance(found, commands.Channel.Close) and number == channel:
                self.say(commands.Channel.CloseOk(), number)
                raise Closed(found)
            if isinstance(found, commands.Connection.Close):
                self.say(commands.Connection.CloseOk(), 0)
                raise Closed(found)
            self.waiting.append((number, found))

    def with_content(self, method: Any) -> Message:
        _, head = self.next()
        content = b""
        while len(content) < head.body_size:
            content += self.next()[1].value
        return Message(method, head.properties, content)

    def delivery(self, channel: int = 1) -> Message:
        message: Message = self.hear(commands.Basic.Deliver, channel)
        return message

    def deliveries(self, count: int, channel: int = 1) -> list[bytes]:
        return [self.delivery(channel).body for _ in range(count)]

    def heard(self, kind: type[Any]) -> list[Any]:
        """What came in already, of a kind."""
        return [found for _, found in self.waiting if isinstance(method_of(found), kind)]

    def sync(self, channel: int = 1) -> None:
        """Everything said before has been dealt with, and everything said to us about it has arrived."""
        self.ask(commands.Channel.Flow(True), commands.Channel.FlowOk, channel)

    # ---------------------------------------------------------------- shorthands

    def declare(self, queue: str, channel: int = 1, durable: bool = True, exclusive: bool = False, auto_delete: bool = False, passive: bool = False,
                **arguments: Any) -> Any:
        named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        command = made(commands.Queue.Declare, queue=queue, passive=passive, durable=durable, exclusive=exclusive, auto_delete=auto_delete,
                       arguments=named)
        return self.ask(command, commands.Queue.DeclareOk, channel)

    def exchange(self, name: str, kind: str = "direct", channel: int = 1, durable: bool = True, auto_delete: bool = False, internal: bool = False,
                 passive: bool = False, arguments: dict[str, Any] | None = None) -> Any:
        return self.ask(made(commands.Exchange.Declare, exchange=name, exchange_type=kind, passive=passive, durable=durable, auto_delete=auto_delete,
                             internal=internal, arguments=arguments or {}), commands.Exchange.DeclareOk, channel)

    def bind(self, queue: str, exchange: str, key: str = "", arguments: dict[str, Any] | None = None, channel: int = 1) -> Any:
        command = made(commands.Queue.Bind, queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
        return self.ask(command, commands.Queue.BindOk, channel)

    def consume(self, queue: str, tag: str = "", no_ack: bool = False, exclusive: bool = False, channel: int = 1, **arguments: Any) -> str:
        named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        command = made(commands.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, arguments=named)
        answer = self.ask(command, commands.Basic.ConsumeOk, channel)
        return str(answer.consumer_tag)

    def get(self, queue: str, no_ack: bool = False, channel: int = 1) -> Message | None:
        self.say(made(commands.Basic.Get, queue=queue, no_ack=no_ack), channel)
        answer = self.hear((commands.Basic.GetOk, commands.Basic.GetEmpty), channel)  # type: ignore[arg-type]
        return answer if isinstance(answer, Message) else None

    def ack(self, tag: int, multiple: bool = False, channel: int = 1) -> None:
        self.say(commands.Basic.Ack(tag, multiple), channel)

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True, channel: int = 1) -> None:
        self.say(commands.Basic.Nack(tag, multiple, requeue), channel)

    def qos(self, count: int, whole: bool = False, channel: int = 1) -> None:
        self.ask(commands.Basic.Qos(prefetch_count=count, global_=whole), commands.Basic.QosOk, channel)

    def confirms(self, channel: int = 1) -> Talk:
        self.ask(commands.Confirm.Select(), commands.Confirm.SelectOk, channel)
        return self

    def closed(self, channel: int = 1) -> Closed:
        """The error that must come now."""
        try:
            self.hear(commands.Queue.UnbindOk, channel)
        except Closed as error:
            return error
        raise AssertionError("no error came")

    def leave(self) -> None:
        self.socket.close()


class Node(Embedded):
    """An embedded node with an AMQP listener."""

    def __init__(self, folder: pathlib.Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, ["listeners.amqp.bind=127.0.0.1:0", *settings])
        self.talks: list[Talk] = []

    def talk(self, **how: Any) -> Talk:
        self.talks.append(Talk(self.node.addresses["amqp"], **how))
        return self.talks[-1]

    def leave(self) -> None:
        """Everybody goes."""
        for talk in self.talks:
            talk.leave()
        self.talks = []

    def open(self, **how: Any) -> Talk:
        """A client with channel 1."""
        return self.talk(**how).channel()

    def sessions(self) -> list[Any]:
        frontend: Any = self.node.frontends["amqp"]
        return list(self.call(lambda: list(frontend.peers)))

    def administer(self, plan: str, *arguments: Any) -> None:
        """Change the catalog as an administrator would: a vhost, a user, a policy."""
        self.call(lambda: self.node.administration.change(getattr(self.broker.catalog, plan)(*arguments)))

    def user(self, name: str, tags: Sequence[str] = (), vhost: str = "/", configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """A user whose password is the name."""
        self.administer("plan_user", name, hash_password(name), ARGON2ID, list(tags))
        self.administer("plan_permission", vhost, name, configure, write, read)

    def stop(self) -> None:
        self.leave()
        super().stop()
