from __future__ import annotations

from trilogue.core.message import Run
from trilogue.core.window import Budget, Window


def run(count: int, offset: int = 0) -> Run:
    made = Run(b"", b"", 0, [b"x" * 10] * count, 10 * count)
    made.offset = offset
    return made


def window(total: int = 1_000, most: int = 100) -> Window:
    return Window(Budget(total, most))


def sizes(w: Window) -> tuple[int, int]:
    return w.size, w.budget.used


def test_keeps_what_follows_on_while_there_is_room() -> None:
    w = window()
    w.push(0, run(5), False)
    w.push(9, run(1), False)                    # something before it is missing
    w.push(5, run(5), False)
    w.push(10, run(1), False)                   # full
    assert (w.complete_to, sizes(w)) == (10, (100, 100))
    w.push(10, run(1), True)                    # somebody waits for it
    assert (w.complete_to, sizes(w)) == (11, (110, 110))


def test_the_budget_is_shared() -> None:
    budget = Budget(50, 100)
    one, other = Window(budget), Window(budget)
    one.push(0, run(5), False)
    other.push(0, run(1), False)
    assert (other.complete_to, budget.used) == (0, 50)
    one.clear(0)
    other.push(0, run(1), False)
    assert (other.complete_to, budget.used) == (1, 10)


def test_finds_by_ordinal_and_reads_fill_holes() -> None:
    w = window()
    w.insert(20, run(3))
    w.insert(5, run(2))
    w.insert(10, run(4))
    w.insert(11, run(2))                        # there already
    assert [(entry.first, entry.end) for entry in w.entries] == [(5, 7), (10, 14), (20, 23)]
    found = {o: w.find(o) for o in (22, 4, 5, 6, 7, 13, 14, 20)}
    assert {o: entry and entry.first for o, entry in found.items()} == {22: 20, 4: None, 5: 5, 6: 5, 7: None, 13: 10, 14: None, 20: 20}
    assert sizes(w) == (90, 90)
    w.trim(13)
    assert [entry.first for entry in w.entries] == [10, 20]
    assert sizes(w) == (70, 70)


def test_sheds_only_what_was_delivered_and_written() -> None:
    w = window(most=30)
    for k in range(6):
        w.push(k * 2, run(2, k * 2), True)
    w.shed(8, 6)
    assert [entry.first for entry in w.entries] == [6, 8, 10]
    assert sizes(w) == (60, 60)
