from __future__ import annotations

from pamqp import commands, frame

from trilogue.core.message import ORIGIN_AMQP, Run
from trilogue.frontends.amqp.frames import delivered, got, queue_declared, returned

RUN = Run("x / ü".encode(), b"k" * 300, ORIGIN_AMQP, [b""], 0)


def test_frames_say_what_pamqp_reads() -> None:
    size, channel, method = frame.unmarshal(delivered(7, b"tag", 1 << 40, True, RUN))
    assert isinstance(method, commands.Basic.Deliver)
    assert (channel, method.consumer_tag, method.delivery_tag, method.redelivered, method.exchange, method.routing_key) == (
        7, "tag", 1 << 40, True, "x / ü", "k" * 255)
    _, _, method = frame.unmarshal(got(7, 5, False, RUN, 9))
    assert isinstance(method, commands.Basic.GetOk)
    assert (method.delivery_tag, method.redelivered, method.exchange, method.message_count) == (5, False, "x / ü", 9)
    _, _, method = frame.unmarshal(returned(7, RUN))
    assert isinstance(method, commands.Basic.Return)
    assert (method.reply_code, method.reply_text, method.exchange) == (312, "NO_ROUTE", "x / ü")
    data = queue_declared(7, "q" * 255, 3, 2)
    size, _, method = frame.unmarshal(data)
    assert isinstance(method, commands.Queue.DeclareOk)
    assert (size, method.queue, method.message_count, method.consumer_count) == (len(data), "q" * 255, 3, 2)
