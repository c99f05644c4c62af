"""A node, put together: the one place that knows every part. Owned by the event loop.

`open` reads the disk and blocks; `start` begins to serve; `stop` drains, writes what is left, and leaves the mark of a clean shutdown.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
from collections.abc import Callable, Iterable

import structlog

from trilogue import plugins, settings, tls
from trilogue.config.model import Config, Listener
from trilogue.config.option import Address
from trilogue.core.access import Access
from trilogue.core.administration import Administration
from trilogue.core.broker import Broker
from trilogue.core.catalog import Catalog
from trilogue.core.follower import Follower
from trilogue.core.frontend import Context, Door, FlowSettings, Frontend
from trilogue.core.health import HEALTH_ID, Health, HealthPartition
from trilogue.core.housekeeping import Housekeeping
from trilogue.core.limits import Limits
from trilogue.core.ports import Promise, SegmentInfo
from trilogue.core.startup import METADATA_ID, SHARD_ID, PartitionOpener, Startup
from trilogue.core.window import Budget
from trilogue.declare import declare
from trilogue.loop import LoopScheduler, ThreadVerifier
from trilogue.routing.exchange import SeededChance
from trilogue.routing.lens import Lenses
from trilogue.routing.router import BindingRouter
from trilogue.store.codec import BatchUnpacker
from trilogue.store.store import Store
from trilogue.store.worker import LoopPost
from trilogue.upkeep import Upkeep

WINDOWS_BYTES_MAX = 256 << 20       # all queues' windows together
RETAINED_COUNT_MAX = 1_000_000
RETAINED_BYTES_MAX = 256 << 20
SHARDS_MAX = 256
LAST_ROUND_S = 10.0                 # how long a stop waits for a disk that does not answer
POLL_S = 0.02
EVERYWHERE = "*"

logger = structlog.get_logger("node")


class Fired(Promise):
    """Lets a coroutine wait for a callback of the core."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def kept(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def broken(self, reason: str) -> None:
        self.kept()


class Node:
    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, descriptors: int) -> None:
        self.config = config
        self.loop = loop
        self.descriptors = descriptors
        self.classes = plugins.frontends((one.frontend for one in config.listeners.values()), config.node.plugins)
        self.contexts = {name: tls.context_of(one.tls) for name, one in config.listeners.items() if one.tls}
        self.door = Door(settings.connection_descriptors_max(config, descriptors))
        self.flow = FlowSettings(config.limits.connection.consumer_buffer_bytes, config.limits.connection.parked_bytes_max)
        self.closed = False
        self.frontends: dict[str, Frontend] = {}
        self.addresses: dict[str, str] = {}
        self.scheduler = LoopScheduler(loop)
        self.verifier = ThreadVerifier(loop)
        self.store = Store(config.node.data_dir, settings.store_settings(config), LoopPost(loop))
        try:
            self.open()
        except BaseException:
            self.verifier.close()
            self.store.close()
            raise

    # -------------------------------------------------------------------------------------------- open

    def open(self) -> None:
        config = self.config
        catalog = Catalog(config.limits.vhost.queues_max)
        lenses = Lenses()
        for frontend in self.classes.values():
            for origin, lens in frontend.lenses():
                lenses.add(origin, lens)
        access = Access(catalog, settings.access_settings(config), self.scheduler, os.urandom(32))
        limits = Limits(catalog, settings.limit_settings(config))
        self.broker = Broker(self.scheduler, self.store.journal, BindingRouter(SeededChance(os.urandom(8))), lenses, catalog, access, limits,
                             config.storage.unsynced_bytes_max, self.store.epoch)
        self.store.journal.attach(self.broker.flusher)
        self.administration = Administration(self.broker)
        self.opener = PartitionOpener(self.broker, self.store.checkpoints, BatchUnpacker())
        self.recover()
        self.health = self.open_health()
        housekeeping = Housekeeping(self.broker, self.opener)
        declare(config, self.administration)
        self.upkeep = Upkeep(self.broker, housekeeping, self.loop, LoopPost(self.loop), config)
        self.report()

    def recover(self) -> None:
        # Records get broker time from here on, which must not lie before what the logs already say (RULES 9).
        self.raise_clock([self.opener.log(METADATA_ID).segments()])
        budget = Budget(WINDOWS_BYTES_MAX, self.config.storage.queue_window_bytes)
        startup = Startup(self.broker, self.opener, self.shard_count(), budget, RETAINED_COUNT_MAX, RETAINED_BYTES_MAX)
        startup.open_partitions()
        self.raise_clock(partition.log.segments() for partition in self.broker.partitions.values())
        Follower(self.broker, self.opener).catch_up()
        self.raise_clock(partition.log.segments() for partition in self.broker.partitions.values())
        startup.lead()

    def shard_count(self) -> int:
        """As configured, or as many as have left something on disk, whichever is more."""
        used = [id - SHARD_ID + 1 for id in self.store.journal.partitions() if SHARD_ID <= id < SHARD_ID + SHARDS_MAX]
        return max([self.config.storage.shards, *used])

    def raise_clock(self, logs: Iterable[list[SegmentInfo]]) -> None:
        for segments in logs:
            for segment in segments[-2:]:       # the last one may be empty
                self.scheduler.raise_to(int(segment.last_time_ms))

    def open_health(self) -> Health:
        broker = self.broker
        partition = HealthPartition(HEALTH_ID, self.opener.log(HEALTH_ID), self.scheduler, broker.flusher, broker.epoch)
        self.opener.recover(partition)
        return Health(broker, partition)

    def report(self) -> None:
        journal = self.store.journal
        logger.info("opened", data_dir=self.config.node.data_dir, epoch=self.store.epoch, partitions=len(self.broker.partitions),
                    queues=sum(len(shard.queues) for shard in self.broker.shards), recovered_bytes=int(journal.recovered_bytes),
                    replayed_bytes=int(self.opener.replayed_bytes))
        for partition, reason in self.broker.failures.items():
            logger.error("partition refused", partition=partition, reason=reason)

    # -------------------------------------------------------------------------------------------- serve

    async def start(self) -> None:
        """Listen everywhere; `addresses` then has the real ones."""
        self.upkeep.start()
        for name, listener in self.config.listeners.items():
            await self.listen(name, listener)

    async def listen(self, name: str, listener: Listener) -> None:
        assert listener.bind is not None
        made = self.classes.get(listener.frontend)
        if made is None:
            logger.warning("listener skipped: its frontend is not installed", listener=name, frontend=listener.frontend)
            return
        frontend = made(Context(name, self.broker, self.administration, self.health, self.loop, self.verifier, self.door, self.flow,
                                listener.vhost or self.config.auth.vhost, listener.options, self.contexts.get(name)))
        try:
            port = await frontend.start("" if listener.bind.host == EVERYWHERE else listener.bind.host, listener.bind.port)
        except OSError as error:
            await frontend.close()
            what = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
            raise OSError(error.errno, f"address {listener.bind} of listener {name} {what}") from error
        self.frontends[name] = frontend
        self.addresses[name] = str(Address(listener.bind.host, port))

    def reload(self, config: Config) -> None:
        """Use what can be changed without a restart. An error says what could not be; what comes after it stays as it was."""
        for name, context in self.contexts.items():
            listener = config.listeners.get(name)
            if listener is not None and listener.tls is not None:
                tls.renew(context, listener.tls)
        declare(config, self.administration)
        broker = self.broker
        broker.limits.set(settings.limit_settings(config))
        broker.catalog.queues_per_vhost_max = config.limits.vhost.queues_max
        broker.access.settings = settings.access_settings(config)
        broker.flusher.unsynced_max = config.storage.unsynced_bytes_max
        self.door.descriptors_max = settings.connection_descriptors_max(config, self.descriptors)
        self.flow.consumer_buffer_bytes = config.limits.connection.consumer_buffer_bytes
        self.flow.parked_bytes_max = config.limits.connection.parked_bytes_max
        self.upkeep.configure(config)
        self.config = dataclasses.replace(config, listeners=self.config.listeners)

    # -------------------------------------------------------------------------------------------- stop

    async def stop(self) -> None:
        """Drain, write what is left, close. Clients that do not leave in time are cut off."""
        self.broker.draining = True
        for frontend in self.frontends.values():
            frontend.stop()
        for frontend in self.frontends.values():
            frontend.drain()
        await self.settle(lambda: not any(one.clients() for one in self.frontends.values()), self.config.node.drain_timeout_ms / 1000)
        for frontend in self.frontends.values():
            await frontend.close()
        await asyncio.sleep(0)
        self.upkeep.stop()
        if not await self.last_round():
            logger.error("the disk did not answer; the next start recovers as after a crash")
        self.close()

    def close(self) -> None:
        """Let go of the data directory. Without `stop` before it the next start recovers as after a crash."""
        self.closed = True
        self.upkeep.close()
        self.verifier.close()
        self.store.close()

    async def last_round(self) -> bool:
        """Everything onto the disk, then the checkpoints: a clean start has little to replay. False: the disk does not answer."""
        self.broker.flusher.acks_due()
        if not await self.rounded():
            return False
        for checkpointer in self.opener.checkpointers.values():
            checkpointer.begin()
        return await self.settle(self.checkpointed, LAST_ROUND_S) and await self.rounded()

    def checkpointed(self) -> bool:
        return not any(one.busy and not one.partition.stopped for one in self.opener.checkpointers.values())

    async def rounded(self) -> bool:
        fired = Fired(self.loop)
        self.broker.after(fired)
        try:
            await asyncio.wait_for(fired.future, LAST_ROUND_S)
        except TimeoutError:
            return False
        return True

    async def settle(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something to become true, for so long."""
        until = self.loop.time() + timeout_s
        while not done():
            if self.loop.time() >= until:
                return False
            await asyncio.sleep(POLL_S)
        return True
