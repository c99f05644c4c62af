"""Bunny for Ruby; what it does is in bunny_scenes.rb."""

from __future__ import annotations

import pathlib

import pytest

from interop_tests.broker import Broker
from interop_tests.stage import Stage, command
from interop_tests.wire import Wire

SCENES = pathlib.Path(__file__).parent / "bunny_scenes.rb"
NAMES = ["declare", "confirms", "prefetch", "properties", "redelivery", "returned", "errors", "cancelled", "terminate", "kill"]


@pytest.mark.parametrize("scene", NAMES)
def test_bunny(broker: Broker, wire: Wire, stage: Stage, name: str, scene: str) -> None:
    stage.play([command("ruby"), str(SCENES), scene, str(broker.port), str(wire.port), name])
