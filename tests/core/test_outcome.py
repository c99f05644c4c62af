from __future__ import annotations

import pytest

from tests.core.world import Writer
from trilogue.core.outcome import Outcome


@pytest.mark.parametrize(("waits", "refused", "confirmed"), [(False, [], [(5, 7)]), (True, [], []), (False, [1], [(5, 5), (7, 7)]), (True, [1], []),
                                                              (False, [0, 1, 2], [])])
def test_each_message_is_answered_for_once(waits: bool, refused: list[int], confirmed: list[tuple[int, int]]) -> None:
    writer = Writer()
    outcome = Outcome(5, 3)
    outcome.waits = waits
    for k in [*refused, *refused]:
        outcome.refuse(k, "full")
    outcome.tell(writer, True)
    assert writer.sure_only == confirmed
    assert writer.lost_only == [5 + k for k in refused]


def test_nobody_asked_for_confirms() -> None:
    writer = Writer()
    outcome = Outcome(1, 2)
    outcome.refuse(0, "full")
    outcome.tell(writer, False)
    assert writer.sure_only == []
    assert writer.lost_only == [1]
