"""The HTTP listener: metrics and health. Nothing here needs a login, so nothing here shows more than names and numbers."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from trilogue.core.frontend import BACKLOG, Context, Frontend
from trilogue.frontends.http.health import CONTEXT, live, ready
from trilogue.frontends.http.metrics import Metrics

SHUTDOWN_S = 1.0


class HttpFrontend(Frontend):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        metrics = Metrics(context)
        self.app = web.Application()
        self.app[CONTEXT] = context
        self.app.router.add_get("/metrics", metrics.total)
        self.app.router.add_get("/metrics/per-object", metrics.per_object)
        self.app.router.add_get("/health/live", live)
        self.app.router.add_get("/health/ready", ready)
        self.runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=SHUTDOWN_S, handle_signals=False)
        self.listening: asyncio.AbstractServer | None = None

    async def start(self, host: str, port: int) -> int:
        await self.runner.setup()
        handler: Any = self.runner.server
        server: Any = await self.context.loop.create_server(handler, host, port, ssl=self.context.tls, backlog=BACKLOG)
        self.listening = server
        return int(server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self.listening is not None:
            self.listening.close()

    def drain(self) -> None:
        """Requests are short; `close` waits for them."""

    def clients(self) -> int:
        return 0

    async def close(self) -> None:
        self.stop()
        await self.runner.cleanup()
