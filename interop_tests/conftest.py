"""Fixtures for every client: a broker, a wire to it that can be cut, a stage for other languages, and the two ways a broker ends.

Nothing of ours is imported here or in the tests: the broker is a subprocess, and everything else happens over its sockets. Each test file,
which is each client, has a broker of its own. A client that is missing is a failure that says how to install it; never a reason to skip.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from interop_tests.broker import Broker
from interop_tests.stage import Stage
from interop_tests.wire import Wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    if made.process is not None:
        made.end(signal.SIGKILL)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    made = Wire(broker.port)
    yield made
    made.close()


@pytest.fixture
def stage(broker: Broker, wire: Wire) -> Stage:
    return Stage(broker, wire)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For queues and exchanges of this test."""
    return re.sub(r"\W+", "-", f"{request.node.path.stem}-{request.node.name}").strip("-")


@pytest.fixture(params=[signal.SIGTERM, signal.SIGKILL], ids=["terminate", "kill"])
def ending(request: pytest.FixtureRequest) -> signal.Signals:
    """How the broker goes when it is restarted."""
    how: signal.Signals = request.param
    return how
