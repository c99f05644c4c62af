"""How long a channel may hold what it was delivered: until the consumer timeout of the queue, else that of the listener.

Nothing is noted per delivery. Several times per timeout the channel's last tag is marked with the time, which tells, to one interval, since
when a tag has been out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from trilogue.core.ports import Callback
from trilogue.core.queue import Queue

if TYPE_CHECKING:
    from trilogue.frontends.amqp.channel import Channel

WATCHES: Final = 4                          # per timeout
WATCH_MS_MIN: Final = 10
WATCH_MS_MAX: Final = 60_000


class Patience(Callback):
    def __init__(self, channel: Channel) -> None:
        self.channel: Channel = channel
        self.shortest_ms: i64 = 0               # timeout of the queues that the channel takes from; 0: none has one
        self.scheduled: bool = False
        self.marks: list[tuple[int, int]] = []  # (ms, tag): what was delivered by then

    def watch(self, queue: Queue) -> None:
        """What this queue delivers must be answered in time, if there is a limit."""
        timeout = self.timeout(queue)
        if timeout > 0:
            if self.shortest_ms == 0 or timeout < self.shortest_ms:
                self.shortest_ms = timeout
            if not self.scheduled:
                self.schedule()

    def timeout(self, queue: Queue) -> i64:
        own = queue.options.consumer_timeout_ms
        return own if own >= 0 else self.channel.link.consumer_timeout_ms

    def schedule(self) -> None:
        self.scheduled = True
        step: i64 = self.shortest_ms // WATCHES
        if step > WATCH_MS_MAX:
            step = WATCH_MS_MAX
        elif step < WATCH_MS_MIN:
            step = WATCH_MS_MIN
        self.channel.link.context.broker.scheduler.call_later(float(step) / 1000.0, self)

    def fire(self) -> None:
        self.scheduled = False
        channel = self.channel
        if channel.closed:
            return
        now = channel.link.context.broker.scheduler.now_ms()
        timeout = self.overdue(now)
        if timeout:
            channel.link.channel_error(channel.number, 406, f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: "
                                       f"{timeout} ms. This timeout value can be configured, see consumers doc guide to learn more", 0)
            return
        held = channel.unacked.held
        first: i64 = held[0].tag if held else channel.tag + 1
        self.marks = [mark for mark in self.marks if mark[1] >= first]
        if held and (not self.marks or self.marks[len(self.marks) - 1][1] < channel.tag):
            self.marks.append((int(now), int(channel.tag)))
        if channel.consumers or held or channel.getting:
            self.schedule()

    def overdue(self, now: i64) -> i64:
        """The timeout that has passed, if one has; else 0."""
        for held in self.channel.unacked.held:
            queue = held.lane.owner
            if isinstance(queue, Queue):
                timeout = self.timeout(queue)
                if timeout > 0 and now - self.out_since(held.tag, now) >= timeout:
                    return timeout
        return 0

    def out_since(self, tag: i64, now: i64) -> i64:
        for ms, upto in self.marks:
            if tag <= upto:
                return ms
        return now
