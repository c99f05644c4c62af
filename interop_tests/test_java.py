"""RabbitMQ's client for Java; what it does is in JavaScenes.java, which is compiled once."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from interop_tests.broker import Broker
from interop_tests.stage import Stage, command, installed
from interop_tests.wire import Wire

SOURCE = pathlib.Path(__file__).parent / "JavaScenes.java"
JARS = [pathlib.Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]
NAMES = ["declare", "confirms", "prefetch", "properties", "redelivery", "returned", "errors", "cancelled", "rpc", "terminate", "kill"]
# A scene is over before more optimisation would pay.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled scenes."""
    folder = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join([str(folder), *(str(installed(jar)) for jar in JARS)])
    subprocess.run([command("javac"), "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
    return path


@pytest.mark.parametrize("scene", NAMES)
def test_java(broker: Broker, wire: Wire, stage: Stage, name: str, classes: str, scene: str) -> None:
    stage.play([command("java"), *QUICK, "-cp", classes, "JavaScenes", scene, str(broker.port), str(wire.port), name])
