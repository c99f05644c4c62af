"""Load on a real broker, and the memory of what it promised: workers that publish, consume and answer over many lives of one server.

Each worker is one connection to the line frontend. Messages are numbered per worker ("source"), so that everything that comes back can be
checked at once: was it ever sent, is it flagged if it was delivered before, is it in order, was it settled for good? An answer (ACK,
REJECT) is known to be on disk when a message that its worker published *after* it, to the same queue, is confirmed: they share a log.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Callable

PATIENCE_S = 60.0
PUBLISH_WINDOW = 30
HELD_MAX = 15
PREFETCH = 40
LOWEST = 0


class Source:
    """What one worker has published, over all lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0
        self.confirmed: set[int] = set()


class QueueModel:
    """What one queue owes. Ids are (source, number)."""

    def __init__(self, name: str, feeders: list[Source]) -> None:
        self.name = name
        self.feeders = feeders
        self.seen: set[tuple[str, int]] = set()
        self.answered: set[tuple[str, int]] = set()         # ACK or REJECT was sent: it may be gone
        self.gone: set[tuple[str, int]] = set()             # and it is known to be on disk
        self.rejected: set[tuple[str, int]] = set()         # REJECT was sent
        self.dead: set[tuple[str, int]] = set()             # and it is known to be on disk
        self.new_life()

    def new_life(self) -> None:
        self.last: dict[tuple[str, int], int] = {}          # (source, priority): number
        self.returned: set[tuple[str, int]] = set()
        self.seen_now: set[tuple[str, int]] = set()
        self.answered_now: set[tuple[str, int]] = set()

    def delivered(self, id: tuple[str, int], priority: int, again: bool) -> None:
        where = f"{id} in {self.name}"
        source = next((one for one in self.feeders if one.name == id[0]), None)
        assert source is not None and id[1] <= source.sent, f"{where} was never published there"
        assert id not in self.gone, f"{where} was settled for good and came back"
        assert id not in self.answered_now, f"{where} was answered and came back to the same connection"
        assert again or id not in self.seen, f"{where} came twice without being flagged"
        stream = (id[0], priority)
        if id not in self.returned:
            assert id[1] > self.last.get(stream, 0), f"{where} came after {self.last[stream]}"
            self.last[stream] = id[1]
        self.seen.add(id)
        self.seen_now.add(id)

    def is_complete(self) -> bool:
        """Has everything come that does not come in the order of publishing?"""
        return True

    def missing(self) -> list[tuple[str, int]]:
        """After everything was drained: confirmed, never answered, and yet not there."""
        ids = {(source.name, number) for source in self.feeders for number in source.confirmed}
        return sorted(ids - self.answered - self.seen_now)


class DeadModel(QueueModel):
    """A queue that also gets what was rejected elsewhere, exactly once."""

    def __init__(self, name: str, feeders: list[Source], origin: QueueModel) -> None:
        super().__init__(name, feeders)
        self.origin = origin

    def delivered(self, id: tuple[str, int], priority: int, again: bool) -> None:
        if any(id[0] == source.name for source in self.feeders):
            super().delivered(id, priority, again)
            return
        where = f"dead letter {id}"
        assert id in self.origin.rejected, f"{where} was never rejected"
        assert id not in self.gone, f"{where} was settled for good and came back"
        assert again or id not in self.seen, f"{where} came twice without being flagged"
        self.seen.add(id)
        self.seen_now.add(id)

    def is_complete(self) -> bool:
        return not self.origin.dead - self.answered - self.seen_now

    def missing(self) -> list[tuple[str, int]]:
        return super().missing() + sorted(self.origin.dead - self.answered - self.seen_now)


class Worker:
    """One connection in each life. `exchange` and `key` lead to (at least) the queue that it consumes."""

    def __init__(self, source: Source, model: QueueModel, exchange: str, key: str, priorities: int, rejects: bool, seed: int) -> None:
        self.source = source
        self.model = model
        self.exchange = exchange
        self.key = key
        self.priorities = priorities
        self.rejects = rejects
        self.rng = random.Random(seed)
        self.socket: socket.socket | None = None

    # ---------------------------------------------------------------------------------------- one life

    def connect(self, address: str, draining: bool) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self.rest = b""
        self.out: list[str] = []
        self.sent_before = self.source.sent
        self.confirmed_to = self.source.sent
        self.held: list[tuple[int, tuple[str, int]]] = []
        self.unproven: list[tuple[int, tuple[str, int], bool]] = []     # answers: (published before it, id, rejected)
        self.draining = draining
        self.sentinel = 0
        self.drained = False
        self.model.new_life()
        self.ask("LOGIN guest guest")
        self.open()
        self.socket.setblocking(False)
        if draining:
            self.publish(LOWEST)
            self.sentinel = self.source.sent
        else:
            self.fill_window()
        self.flush()

    def open(self) -> None:
        assert self.ask(f"SUB {self.model.name} {PREFETCH}") == "OK"

    def ask(self, line: str) -> str:
        """Blocking; only while nothing else is expected."""
        assert self.socket is not None
        self.socket.sendall(line.encode() + b"\n")
        while b"\n" not in self.rest:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionResetError
            self.rest += data
        answer, _, self.rest = self.rest.partition(b"\n")
        return answer.decode()

    def publish(self, priority: int) -> None:
        self.source.sent += 1
        padding = "x" * self.rng.choice([10, 100, 700])
        mark = f"{priority}/" if self.priorities else ""
        self.out.append(f"PUB {self.exchange} {self.key} {mark}{self.source.name}:{self.source.sent}:{padding}\n")

    def fill_window(self) -> None:
        while self.source.sent - self.confirmed_to < PUBLISH_WINDOW:
            self.publish(self.rng.randrange(self.priorities) if self.priorities else 0)

    def flush(self) -> None:
        data, self.out = "".join(self.out).encode(), []
        assert self.socket is not None
        while data:
            try:
                data = data[self.socket.send(data):]
            except BlockingIOError:
                selector = selectors.DefaultSelector()
                selector.register(self.socket, selectors.EVENT_WRITE)
                assert selector.select(PATIENCE_S), "the server does not read"
                selector.close()

    def readable(self) -> bool:
        """Handle what has come; false at the end."""
        assert self.socket is not None
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.hear(line.decode())
        if not data:
            return False
        try:
            self.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass                        # there may be more to read all the same
        return True

    def hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "OK":
            self.confirmed(int(rest))
        elif word == "MSG":
            tag, again, body = rest.split(" ", 2)
            self.got(int(tag), again == "1", body)
        else:
            raise AssertionError(f"{self.source.name} heard {line!r}")

    def confirmed(self, upto: int) -> None:
        upto += self.sent_before
        self.source.confirmed.update(range(self.confirmed_to + 1, upto + 1))
        self.confirmed_to = max(self.confirmed_to, upto)
        while self.unproven and self.unproven[0][0] < upto:
            _, id, rejected = self.unproven.pop(0)
            self.model.gone.add(id)
            if rejected:
                self.model.dead.add(id)
        if not self.draining:
            self.fill_window()

    def got(self, tag: int, again: bool, body: str) -> None:
        priority = 0
        if body[1:2] == "/":
            priority, body = int(body[0]), body[2:]
        source, number, _ = body.split(":", 2)
        id = (source, int(number))
        self.model.delivered(id, priority, again)
        chance = self.rng.random()
        if self.draining:
            self.answer(tag, id, "ACK")
        elif chance < 0.03:
            self.model.returned.add(id)
            self.out.append(f"NACK {tag}\n")
        elif chance < 0.08 and self.rejects:
            self.answer(tag, id, "REJECT")
        else:
            self.held.append((tag, id))
            while len(self.held) > HELD_MAX:
                self.answer(*self.held.pop(self.rng.randrange(len(self.held))), "ACK")
        self.drained = self.drained or id == (self.source.name, self.sentinel)

    def answer(self, tag: int, id: tuple[str, int], word: str) -> None:
        if word == "REJECT":
            self.model.rejected.add(id)
        self.model.answered.add(id)
        self.model.answered_now.add(id)
        self.unproven.append((self.source.sent, id, word == "REJECT"))
        self.out.append(f"{word} {tag}\n")

    def is_drained(self) -> bool:
        return self.drained and self.model.is_complete()

    def check(self) -> None:
        """After the last life."""
        assert not self.model.missing(), f"{self.model.name} lost {self.model.missing()[:10]}"


class TransientWorker(Worker):
    """Its queue dies with the server; within one life it is like any other."""

    def open(self) -> None:
        assert self.ask(f"SUB {self.model.name}").startswith("ERR"), "a transient queue has survived"
        assert self.ask(f"DECLARE {self.model.name}") == "OK"
        super().open()

    def got(self, tag: int, again: bool, body: str) -> None:
        assert int(body.split(":")[1]) > self.sent_before, "a message of an earlier life was in a transient queue"
        super().got(tag, again, body)

    def is_drained(self) -> bool:
        return self.drained

    def check(self) -> None:
        assert self.model.seen


class TopicWorker(Worker):
    """Writes to a topic and reads it: what was read once stays where it was."""

    records: dict[int, int]

    def __init__(self, source: Source, name: str, seed: int) -> None:
        super().__init__(source, QueueModel(name, [source]), "-", name, 0, False, seed)
        self.records = {}               # offset: number, as far as ever read
        self.next = 0

    def open(self) -> None:
        if self.draining:
            self.next = 0
        self.found: dict[int, int] = {}
        assert self.ask(f"READ {self.model.name} {self.next}") == "OK"

    def hear(self, line: str) -> None:
        if not line.startswith("REC "):
            super().hear(line)
            return
        _, at, body = line.split(" ", 2)
        offset, number = int(at), int(body.split(":")[1])
        assert offset >= self.next, f"offset {offset} came after {self.next - 1}"
        assert self.records.setdefault(offset, number) == number, f"offset {offset} had {self.records[offset]} and has {number}"
        self.next = offset + 1
        self.found[offset] = number
        self.drained = self.drained or number == self.sentinel

    def is_drained(self) -> bool:
        return self.drained

    def check(self) -> None:
        assert self.found == self.records, "something that was read before is missing"
        numbers = list(self.found.values())
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        assert self.source.confirmed <= set(numbers), f"lost {sorted(self.source.confirmed - set(numbers))[:10]}"


def run(workers: list[Worker], seconds: float, until: Callable[[], bool]) -> bool:
    """Let them work for so long, or until a condition holds; false if somebody was cut off."""
    selector = selectors.DefaultSelector()
    for worker in workers:
        assert worker.socket is not None
        selector.register(worker.socket, selectors.EVENT_READ, worker)
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0 and not until():
            for key, _ in selector.select(min(left, 0.05)):
                if not key.data.readable():
                    return False
    finally:
        selector.close()
    return True


def read_out(workers: list[Worker]) -> None:
    """The server is dead. What it said before still counts."""
    for worker in workers:
        if worker.socket is not None:
            worker.socket.settimeout(PATIENCE_S)
            while worker.readable():
                pass
            worker.socket.close()
            worker.socket = None
