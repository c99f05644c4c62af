"""/health/live: the loop turns. /health/ready: the node takes messages now, which it proves by writing one and reading it back."""

from __future__ import annotations

import asyncio

from aiohttp import web

from trilogue.core.frontend import Context
from trilogue.core.health import HealthDone

ANSWER_S = 5.0
CONTEXT = web.AppKey("context", Context)


class Answer(HealthDone):
    def __init__(self, future: asyncio.Future[str]) -> None:
        self.future = future

    def healthy(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_result(reason)


async def live(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    reason = await probe(request.app[CONTEXT])
    if reason:
        return web.json_response({"status": "failed", "reason": reason}, status=503)
    return web.json_response({"status": "ok"})


async def probe(context: Context) -> str:
    """What is wrong; empty if nothing is."""
    if context.broker.draining:
        return "the broker is shutting down"
    future: asyncio.Future[str] = context.loop.create_future()
    context.health.check(Answer(future))
    try:
        return await asyncio.wait_for(future, ANSWER_S)
    except TimeoutError:
        flusher = context.broker.flusher
        return flusher.stalled or flusher.blocked or f"the disk did not answer within {ANSWER_S:.0f} s"
