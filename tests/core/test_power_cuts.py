"""The whole core on the unmodified store, over a disk that drops, tears and reorders what was not synced when the power goes.

TRILOGUE_CRASH_POINTS says how many crash points are tried. The last test takes the sync away; then the same checks must find losses, or they
would prove nothing.
"""

from __future__ import annotations

import os

import pytest

from tests.core.driver import Driver, Lost
from trilogue.core.errors import Corrupt

POINTS = int(os.environ.get("TRILOGUE_CRASH_POINTS", "240"))
LIVES = 4
STEPS = 120
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_confirmed_is_lost_and_nothing_answered_comes_back(part: int) -> None:
    points = 0
    seed = 10_000 + part
    while points < POINTS // PARTS:
        points += Driver(seed).live_with_power_cuts(LIVES, STEPS)
        seed += PARTS


def test_without_the_sync_losses_are_found() -> None:
    found = {"refused": 0, "lost": 0}
    for seed in range(60):
        driver = Driver(seed, ignores_sync=True)
        driver.forgets_checkpoints = seed % 2 == 0      # a checkpoint proves the loss at once; without one, it must be noticed
        try:
            driver.live_with_power_cuts(LIVES, STEPS)
        except Corrupt:
            found["refused"] += 1
        except Lost:
            found["lost"] += 1
    assert found["lost"] > 5
    assert found["lost"] + found["refused"] > 50
