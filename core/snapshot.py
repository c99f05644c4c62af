"""How a shard's state is written into a checkpoint, and read back. Queues, of which there may be thousands, in fixed-width fields; the
shard's own few facts as plain values for CBOR."""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from trilogue.core.batch import write_u32
from trilogue.core.chain import Block, Chain, block_key
from trilogue.core.decoding import Cursor
from trilogue.core.errors import Corrupt
from trilogue.core.handoff import HandOff, Outbox, Pair
from trilogue.core.queue import Queue
from trilogue.core.record import Letter, Number, encode_ranges

QUEUE_ITEM = b"Q"
STATE_ITEM = b"T"
DELAY_ITEM = b"D"
QUEUE_FORMAT: Final = 1


def item_key(kind: bytes, number: i64) -> bytes:
    w = BytesWriter()
    w.write(kind)
    write_i64_be(w, number)
    return w.getvalue()


def item_number(key: bytes) -> i64:
    return read_i64_be(key, 1)


# ------------------------------------------------------------------------------------------------ queues

def copy_queue(queue: Queue, applied_to: i64, prefix: bytes, extra: list[tuple[bytes, bytes]], storing: list[Block]) -> bytes:
    """A queue as it is now. Full index blocks that are not stored yet go to `extra`, and to `storing` until that is committed."""
    w = BytesWriter()
    w.append(QUEUE_FORMAT)
    write_i64_be(w, applied_to)
    w.append(1 if queue.keeps else 0)
    write_u32(w, len(queue.lanes))
    for lane in queue.lanes:
        copy_chain(w, lane.chain, prefix, extra, storing)
    return w.getvalue()


def copy_chain(w: BytesWriter, chain: Chain, prefix: bytes, extra: list[tuple[bytes, bytes]], storing: list[Block]) -> None:
    write_i64_be(w, chain.target)
    write_i64_be(w, chain.next)
    write_i64_be(w, chain.floor)
    write_i64_be(w, chain.delivered_to)
    write_i64_be(w, chain.size)
    write_i64_be(w, chain.released)
    write_i64_be(w, chain.kept_size)
    write_i64_be(w, chain.timed_to)
    encode_ranges(w, chain.done.lo, chain.done.hi)
    write_pairs(w, chain.counts)
    write_pairs(w, chain.moved)
    encode_ranges(w, chain.seg_base, chain.seg_first)
    last: i64 = len(chain.blocks) - 1
    tail: Block | None = None
    if last >= 0 and chain.blocks[last].loaded:
        tail = chain.blocks[last]
        last -= 1
    write_u32(w, last + 1)
    k: i64 = 0
    while k <= last:
        block = chain.blocks[k]
        if not block.stored:
            extra.append((block_key(prefix, chain.target, block.first), block.encode()))
            storing.append(block)
        write_i64_be(w, block.first)
        k += 1
    data = b"" if tail is None else tail.encode()
    write_u32(w, len(data))
    w.write(data)


def write_pairs(w: BytesWriter, pairs: dict[int, int]) -> None:
    write_u32(w, len(pairs))
    for key, value in pairs.items():
        write_i64_be(w, key)
        write_i64_be(w, value)


def read_pairs(c: Cursor) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for _ in range(c.u32()):
        key = c.long()
        pairs[key] = c.long()
    return pairs


def restore_queue(queue: Queue, data: bytes) -> None:
    c = Cursor(data, 0, len(data))
    if c.u8() != QUEUE_FORMAT:
        raise Corrupt("a queue in a checkpoint has a format that is not known to this version")
    queue.applied_to = c.long()
    queue.keeps = c.u8() == 1
    for _ in range(c.u32()):
        target = c.long()
        restore_chain(queue.lane(target & 255).chain, c)


def restore_chain(chain: Chain, c: Cursor) -> None:
    chain.next = c.long()
    chain.floor = c.long()
    chain.delivered_to = c.long()
    chain.size = c.long()
    chain.released = c.long()
    chain.kept_size = c.long()
    chain.timed_to = c.long()
    lo: list[int] = []
    hi: list[int] = []
    c.ranges(lo, hi)
    for k in range(len(lo)):
        chain.done.add(lo[k], hi[k])
    chain.counts = read_pairs(c)
    chain.moved = read_pairs(c)
    c.ranges(chain.seg_base, chain.seg_first)
    for first in c.i64_list(c.u32()):
        block = Block(first)
        block.stored = True
        block.unload()
        chain.blocks.append(block)
    data = c.blob(c.u32())
    if data:
        tail = Block(read_i64_be(data, 0))
        tail.decode(data)
        chain.blocks.append(tail)
    count_live(chain)


def count_live(chain: Chain) -> None:
    """Add what the chain owes to its segments' counts."""
    liveness = chain.liveness
    n = len(chain.seg_base)
    for k in range(n):
        lo = chain.seg_first[k]
        hi = chain.seg_first[k + 1] if k + 1 < n else int(chain.next)
        liveness.opened(chain.seg_base[k])
        live: i64 = 0
        for a, z in chain.live_ranges(lo, hi):
            live += z - a
        liveness.change(chain.seg_base[k], live)
    for ordinal, offset in chain.moved.items():
        k = n - 1
        while k > 0 and chain.seg_first[k] > ordinal:
            k -= 1
        liveness.change(chain.seg_base[k], -1)
        liveness.change(liveness.base_of(offset), 1)


# ------------------------------------------------------------------------------------------------ the shard's own

def copy_number(number: Number | None) -> list[int] | None:
    return None if number is None else [int(number.epoch), int(number.offset), int(number.index)]


def read_number(fields: list[int] | None) -> Number | None:
    return None if fields is None else Number(fields[0], fields[1], fields[2])


def known_number(fields: list[int]) -> Number:
    return Number(fields[0], fields[1], fields[2])


def copy_hand_off(hand_off: HandOff) -> list[Any]:
    letter = hand_off.letter
    return [copy_number(hand_off.number), letter.targets, letter.exchange, letter.routing_key, letter.notes, int(hand_off.source)]


def read_hand_off(partition: i64, fields: list[Any]) -> HandOff:
    return HandOff(known_number(fields[0]), Letter(partition, fields[1], fields[2], fields[3], fields[4]), fields[5], None)


def copy_outbox(outbox: Outbox) -> dict[str, Any]:
    pairs: list[Any] = []
    for pair in outbox.pairs.values():
        pending = [copy_hand_off(one) for one in pair.pending]
        pairs.append([int(pair.partition), copy_number(pair.last), pending, [copy_hand_off(one) for one in pair.refused]])
    return {"pairs": pairs, "moved": outbox.moved}


def restore_outbox(outbox: Outbox, data: dict[str, Any]) -> None:
    for partition, last, pending, refused in data["pairs"]:
        pair = Pair(partition)
        pair.last = read_number(last)
        pair.pending = [read_hand_off(partition, fields) for fields in pending]
        pair.refused = [read_hand_off(partition, fields) for fields in refused]
        outbox.pairs[partition] = pair
    outbox.moved = data["moved"]
