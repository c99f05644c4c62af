"""Somebody who publishes: counted, confirmed, and held back when the disk cannot follow."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from trilogue.core.errors import BrokerError


@mypyc_attr(allow_interpreted_subclasses=True)
class Publisher(ABC):
    """Frontends subclass it, one per channel or session. `sequence` counts what it published; confirms name it up to a number."""

    def __init__(self) -> None:
        self.sequence: i64 = 0
        self.waits: i64 = 0         # for which partitions of the round that is being collected, as bits
        self.held: bool = False

    @abstractmethod
    def confirmed(self, upto: i64) -> None:
        """Everything up to `upto` is as safe as the broker promises, except what was confirmed or refused on its own."""

    @abstractmethod
    def confirmed_only(self, first: i64, last: i64) -> None:
        """Just these: they need no disk, and earlier ones may still wait for it."""

    @abstractmethod
    def refused(self, upto: i64, error: BrokerError) -> None:
        """Everything up to `upto` that was not confirmed or refused before is lost, or may be."""

    @abstractmethod
    def refused_only(self, first: i64, last: i64, error: BrokerError) -> None:
        """Just these were not taken; earlier ones may still wait for the disk."""

    @abstractmethod
    def hold(self) -> None:
        """Stop reading from this publisher: the disk cannot follow, or is full."""

    @abstractmethod
    def release(self) -> None: ...
