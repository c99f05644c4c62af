"""The line frontend with priorities: a body that begins with a digit and a slash has that priority."""

from __future__ import annotations

from line_frontend import LineConnection, LineFrontend

from trilogue.core.frontend import Peer
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span


class LoadFrontend(LineFrontend):
    def connection(self) -> Peer:
        return LoadConnection(self)


class LoadConnection(LineConnection):
    def do_pub(self, exchange: str, key: str, body: str) -> None:
        span = native_span(b"", body.encode())
        priority = int(body[0]) if body[1:2] == "/" else 0
        run = Run(b"" if exchange == "-" else exchange.encode(), key.encode(), ORIGIN_NATIVE, [span], len(span), PERSISTENT, priority)
        self.context.broker.publish(self.session, self.publisher, run, True)
