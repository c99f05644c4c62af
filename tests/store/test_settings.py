"""Settings are checked as a whole."""

from __future__ import annotations

import pytest

from trilogue.store.settings import StoreSettings


def test_the_defaults_are_valid() -> None:
    assert StoreSettings().segment_bytes == 1 << 30


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"segment_bytes.*segment_ms.*index_interval_bytes.*durability.*descriptors_max.*checkpoint_map_bytes"):
        StoreSettings(segment_bytes=1, segment_ms=1, index_interval_bytes=1, durability="maybe", descriptors_max=1, checkpoint_map_bytes=1)
