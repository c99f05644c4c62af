from __future__ import annotations

import pytest

from tests.frontends.line_frontend import LineFrontend
from trilogue.core.connection import is_loopback
from trilogue.core.errors import LimitExceeded
from trilogue.core.frontend import Door


def test_the_door_counts_by_the_number_of_the_descriptor() -> None:
    door = Door(100)
    door.enter(99)
    with pytest.raises(LimitExceeded, match="connections may use 100"):
        door.enter(100)
    assert door.refused == 1
    door.descriptors_max = 101
    door.enter(100)


def test_no_limit() -> None:
    Door(-1).enter(1_000_000)


def test_a_frontend_need_not_bring_a_lens() -> None:
    assert LineFrontend.lenses() == []


@pytest.mark.parametrize(("host", "loopback"), [
    ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("128.0.0.1", False), ("", False),
])
def test_who_is_on_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
