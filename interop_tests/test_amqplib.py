"""amqplib for Node.js; what it does is in amqplib_scenes.js."""

from __future__ import annotations

import pathlib

import pytest

from interop_tests.broker import Broker
from interop_tests.stage import Stage, command, installed
from interop_tests.wire import Wire

HERE = pathlib.Path(__file__).parent
MODULES = HERE.parent / "build" / "npm" / "node_modules"
NAMES = ["declare", "confirms", "prefetch", "properties", "redelivery", "returned", "errors", "cancelled", "terminate", "kill"]


@pytest.mark.parametrize("scene", NAMES)
def test_amqplib(broker: Broker, wire: Wire, stage: Stage, name: str, scene: str) -> None:
    installed(MODULES / "amqplib")
    stage.play([command("node"), str(HERE / "amqplib_scenes.js"), scene, str(broker.port), str(wire.port), name], NODE_PATH=str(MODULES))
