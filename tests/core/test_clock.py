from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.core.clock import Clock

MS = 1_000_000
SECOND = 1_000 * MS
DAY = 86_400 * SECOND
START = 1_700_000_000 * SECOND


def test_it_runs_with_the_boot_clock() -> None:
    clock = Clock(5 * SECOND, START)
    assert clock.read(5 * SECOND, START) == START // MS
    assert clock.read(7 * SECOND, START + 2 * SECOND) == START // MS + 2_000


def test_a_jump_of_a_day_ahead_is_caught_up_slowly() -> None:
    clock = Clock(0, START)
    assert clock.read(SECOND, START + DAY) == START // MS + 1_010
    for second in range(2, 101):
        clock.read(second * SECOND, START + DAY + second * SECOND)
    assert clock.read(100 * SECOND, START + DAY) == START // MS + 101_000


def test_a_jump_of_a_day_back_slows_it_down_and_never_turns_it() -> None:
    clock = Clock(0, START)
    assert clock.read(SECOND, START - DAY) == START // MS + 990
    assert clock.read(SECOND, START - DAY) == START // MS + 990
    assert clock.ahead_ns == DAY + 990 * MS


def test_it_meets_the_wall_clock_and_stays_with_it() -> None:
    clock = Clock(0, START)
    for second in range(1, 120):
        clock.read(second * SECOND, START + (second + 1) * SECOND)
    assert clock.ahead_ns == 0


def test_sleep_counts() -> None:
    """The boot clock goes on while the machine sleeps, and so does broker time."""
    clock = Clock(0, START)
    assert clock.read(DAY, START + DAY) == (START + DAY) // MS


def test_it_begins_no_earlier_than_the_log_ends() -> None:
    clock = Clock(0, START)
    clock.raise_to(START // MS + 5_000)
    assert clock.read(0, START) == START // MS + 5_000
    clock.raise_to(START // MS)
    assert clock.read(10 * SECOND, START + 10 * SECOND) == START // MS + 5_000 + 9_900


@given(st.lists(st.tuples(st.integers(-SECOND, DAY), st.integers(-DAY, DAY)), max_size=50))
def test_whatever_the_clocks_do(steps: list[tuple[int, int]]) -> None:
    """Never back, never faster or slower than 1 % of the time that really passed."""
    clock = Clock(0, START)
    boot = 0
    wall = START
    before = clock.time_ns
    highest = 0
    for elapsed, jump in steps:
        boot += elapsed
        wall += elapsed + jump
        clock.read(boot, wall)
        passed = max(boot - highest, 0)
        highest = max(highest, boot)
        assert passed - passed // 100 <= clock.time_ns - before <= passed + passed // 100
        before = clock.time_ns
