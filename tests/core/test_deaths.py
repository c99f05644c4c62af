from __future__ import annotations

from trilogue.core.deaths import COUNT, QUEUE, REASON, TIME_MS, add_death, deaths_of, first_death, goes_in_circles
from trilogue.core.message import NOTES_BYTES_MAX
from trilogue.core.record import REASON_EXPIRED, REASON_OVERFLOW, REASON_REJECTED


def died(notes: bytes, queue: str, reason: int, time_ms: int = 1) -> bytes:
    return add_death(notes, queue, reason, time_ms, b"ex", [b"key"], False)


def test_newest_first_and_counted_together() -> None:
    notes = died(b"", "a", REASON_EXPIRED, 10)
    notes = died(notes, "b", REASON_REJECTED, 20)
    notes = died(notes, "a", REASON_EXPIRED, 30)
    assert [(death[QUEUE], death[REASON], death[COUNT], death[TIME_MS]) for death in deaths_of(notes)] == \
        [("a", "expired", 2, 10), ("b", "rejected", 1, 20)]
    assert first_death(notes) == ["a", "expired", b"ex"]
    assert (deaths_of(b""), first_death(b"")) == ([], [])


def test_circles_without_a_rejection_are_cut() -> None:
    notes = died(died(b"", "a", REASON_EXPIRED), "b", REASON_OVERFLOW)
    assert goes_in_circles(notes, "a")
    assert not goes_in_circles(notes, "c")
    assert not goes_in_circles(died(notes, "c", REASON_REJECTED), "a")
    assert not goes_in_circles(b"", "a")


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    notes = b""
    for k in range(400):
        notes = died(notes, f"{k}" + "q" * 200, REASON_EXPIRED)
    assert len(notes) <= NOTES_BYTES_MAX
    assert deaths_of(notes)[0][QUEUE].startswith("399q")
    assert first_death(notes)[0].startswith("0q")
