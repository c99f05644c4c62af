import pytest

from trilogue.core.errors import InvalidArgument
from trilogue.routing.exchange import AllLocal, SeededChance
from trilogue.routing.kinds import KINDS, make_exchange


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_made(kind: str) -> None:
    exchange = make_exchange(kind, "x", 7, {"alternate-exchange": "other"}, SeededChance(bytes(8)), AllLocal())
    assert exchange.name == "x"
    assert exchange.number == 7
    assert exchange.next_alternate() == "other"
    assert exchange.varies() == (kind in ("headers", "x-random", "x-local-random"))


def test_other_kinds_cannot() -> None:
    with pytest.raises(InvalidArgument, match="x-nonsense"):
        make_exchange("x-nonsense", "x", 7, {}, SeededChance(bytes(8)), AllLocal())
