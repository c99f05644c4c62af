"""`trilogue serve`: one node from start to end in this process. Signals: SIGTERM and SIGINT drain and stop, SIGHUP reloads.

Standard output has one line per listener and then `ready`; everything else goes to the log. The ready file appears complete, after that.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import structlog

from trilogue import logs, tuning
from trilogue.config.diff import diff
from trilogue.config.model import Config
from trilogue.config.problems import ConfigError
from trilogue.core.errors import BrokerError, Unavailable
from trilogue.node import Node

logger = structlog.get_logger("serve")


def run(config: Config, ready_file: pathlib.Path | None, reload: Callable[[], Config]) -> None:
    """Serve until told to stop. Raises what keeps a node from starting, in words (`OperatingError`, `OSError`)."""
    if config.coordination.kind != "local":
        raise Unavailable('clusters are not part of this version yet: coordination.kind must be "local"')
    limit = logs.configure(config.logging)
    tuning.tune_process()
    loop = tuning.new_event_loop()
    loop.set_exception_handler(report_bug)
    try:
        loop.run_until_complete(Serving(config, ready_file, reload, loop).run())
    finally:
        limit.flush()
        loop.close()


class Serving:
    """One node and the signals that are meant for it."""

    def __init__(self, config: Config, ready_file: pathlib.Path | None, reload: Callable[[], Config], loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.ready_file = ready_file
        self.load = reload
        self.loop = loop
        self.ended = asyncio.Event()

    async def run(self) -> None:
        # Before anything is opened: a signal during the start must not leave half a node behind.
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.ended.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.note_reload)
        self.node: Node | None = None
        if self.ready_file is not None:
            self.ready_file.unlink(missing_ok=True)
        node = Node(self.config, self.loop, tuning.raise_descriptor_limit())
        try:
            await node.start()
            self.node = node
            tuning.freeze_garbage()
            self.announce(node)
            await self.ended.wait()
            logger.info("stopping")
        finally:
            self.node = None
            await node.stop()
            if self.ready_file is not None:
                self.ready_file.unlink(missing_ok=True)
        logger.info("stopped")

    def announce(self, node: Node) -> None:
        for name, address in node.addresses.items():
            print(f"{name} {address}")
        print("ready", flush=True)
        logger.info("ready", listeners=node.addresses, pid=os.getpid())
        if self.ready_file is not None:
            content = json.dumps({"pid": os.getpid(), "listeners": node.addresses}) + "\n"
            unfinished = self.ready_file.with_name(f"{self.ready_file.name}.{os.getpid()}")
            unfinished.write_text(content)
            unfinished.rename(self.ready_file)

    def note_reload(self) -> None:
        if self.node is None:
            logger.warning("reload ignored: not ready")
            return
        try:
            self.reload(self.node)
        except ConfigError as error:
            for problem in error.problems:
                logger.error("configuration not reloaded", problem=str(problem))
        except (BrokerError, OSError) as error:
            logger.error("configuration not reloaded", problem=str(error))

    def reload(self, node: Node) -> None:
        config = self.load()
        now, later = diff(self.config, config)
        node.reload(config)
        logs.configure(config.logging)
        for change in now:
            logger.info("changed", key=change.key, old=change.old, new=change.new)
        for change in later:
            logger.warning("changes only with a restart", key=change.key, old=change.old, new=change.new)
        self.config = config
        logger.info("configuration reloaded", changed=len(now), need_restart=len(later))


def report_bug(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody caught. It is our mistake, so it is logged with where it happened; the connection concerned is gone already."""
    error = context.get("exception")
    if isinstance(error, ConnectionError | TimeoutError):
        logger.info("connection failed", error=str(error))
        return
    logger.error("internal error", message=context.get("message"), exc_info=error)
