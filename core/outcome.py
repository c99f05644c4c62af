"""What became of a run that was just published: what its publisher must be told, and when."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.errors import LimitExceeded
from trilogue.core.partition import Partition
from trilogue.core.publisher import Publisher


class Outcome:
    def __init__(self, first: i64, count: i64) -> None:
        self.first: i64 = first                 # the publisher's number of the first message
        self.count: i64 = count
        self.waits: bool = False                # at least one copy is on its way to the disk
        self.refused: list[int] = []            # numbers, in order
        self.reason: str = ""

    def refuse(self, k: i64, reason: str) -> None:
        number: i64 = self.first + k
        if number not in self.refused:
            self.refused.append(number)
        self.reason = reason

    def refuse_all(self, stopped: Partition) -> None:
        self.refused = [int(self.first + k) for k in range(self.count)]
        self.reason = f"partition {stopped.id} is stopped: {stopped.stopped}"

    def tell(self, publisher: Publisher, confirm: bool) -> None:
        """Refuse what was refused, whatever became of other copies; confirm the rest, unless that must wait for the disk."""
        last: i64 = self.first + self.count - 1
        if not self.refused:
            if confirm and not self.waits:
                publisher.confirmed_only(self.first, last)
            return
        error = LimitExceeded(self.reason)
        for number in self.refused:
            publisher.refused_only(number, number, error)
        if confirm and not self.waits:
            for number in range(self.first, last + 1):
                if number not in self.refused:
                    publisher.confirmed_only(number, number)
