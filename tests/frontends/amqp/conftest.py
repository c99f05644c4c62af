"""One node for all tests that are content with a queue of their own, and a name for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frontends.amqp.talk import Node, Talk


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("amqp")) as node:
        yield node


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    yield shared
    shared.leave()


@pytest.fixture
def client(node: Node) -> Talk:
    """A client with channel 1."""
    return node.open()


@pytest.fixture
def q(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"{request.node.name}"[:200]
