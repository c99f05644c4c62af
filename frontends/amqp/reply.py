"""Direct reply-to: a channel that asks questions gets the answers straight from whoever publishes them, without a queue.

The consumer of `amq.rabbitmq.reply-to` is a live subscription to a name that nobody can guess. Requests carry that name in place of the
pseudo-queue's, and an answer is published to it through the default exchange, by a client of any protocol.
"""

from __future__ import annotations

import secrets
from typing import Final

from trilogue.core.live import LiveSubscriber
from trilogue.core.message import Run
from trilogue.frontends.amqp.channel import Channel, Subscription
from trilogue.frontends.amqp.frames import delivered, write_span
from trilogue.frontends.amqp.render import render

REPLY_TO: Final = "amq.rabbitmq.reply-to"
UNREAD_BYTES_MAX: Final = 64 << 20          # replies that a client does not read are dropped beyond this


class Replies(LiveSubscriber):
    def __init__(self, channel: Channel, tag: bytes) -> None:
        super().__init__()
        self.channel: Channel = channel
        self.tag: bytes = tag

    def room(self) -> bool:
        link = self.channel.link
        return not link.closed and len(link.w) + link.transport.get_write_buffer_size() < UNREAD_BYTES_MAX

    def deliver(self, run: Run) -> None:
        channel = self.channel
        w = channel.link.w
        for k in range(len(run.spans)):
            channel.tag += 1
            w.write(delivered(channel.number, self.tag, channel.tag, False, run))
            write_span(w, render(run, k, 0, channel.link.frame_max), channel.number, channel.link.frame_max)
        channel.link.wrote()


class FromReplies(Subscription):
    def __init__(self, channel: Channel, tag: bytes) -> None:
        self.replies: Replies = Replies(channel, tag)
        self.channel: Channel = channel
        assert channel.link.session is not None
        self.vhost: str = channel.link.session.vhost
        channel.reply_name = f"{REPLY_TO}.{secrets.token_urlsafe(24)}"
        channel.link.context.broker.listen(self.vhost, channel.reply_name, self.replies)

    def leave(self) -> None:
        self.channel.link.context.broker.unlisten(self.vhost, self.channel.reply_name, self.replies)
        self.channel.reply_name = ""

    def pump(self) -> None:
        """Replies come when they come."""
