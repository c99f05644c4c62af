"""The core against a model of what it owes, over many random histories with kills, restarts and lost checkpoints."""

from __future__ import annotations

import pytest

from tests.core.driver import Driver

SEEDS = 120
STEPS = 90


@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_random_histories(start: int) -> None:
    deliveries = 0
    for seed in range(start, start + 20):
        driver = Driver(seed)
        driver.live_with_kills(STEPS)
        deliveries += driver.deliveries
    assert deliveries > 200
