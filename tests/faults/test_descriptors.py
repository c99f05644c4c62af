"""More clients than descriptors: they are refused while some are left for log files, those who are there notice nothing, and when the others
have gone everything is as before."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.cli.server import PATIENCE_S, Client, Server

LIMIT = 160
RESERVED = 64
HEALED_S = 30.0       # a second or two on an idle machine; this is only where the test gives up


class Limited(Server):
    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *super().command()]

    def descriptors(self) -> int:
        assert self.process is not None
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Limited]:
    with Limited(tmp_path, ["storage.descriptors_max=8"]) as server:
        yield server


def burst(server: Server, count: int) -> list[socket.socket]:
    """So many connections at once, without waiting for any."""
    host, _, port = server.listeners["line"].rpartition(":")
    made = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.connect((host, int(port)))
        made.append(one)
    return made


def works(client: Client, count: int) -> bool:
    return client.ask(f"PUB - q {count}") == f"OK {count}"


def test_clients_are_refused_before_descriptors_run_out(server: Limited) -> None:
    client = server.client()
    assert client.ask("DECLARE q durable") == "OK"
    assert works(client, 1)
    clients: list[Client] = []
    refusal = ""
    while not refusal:
        one = Client(server.listeners["line"], login=False)
        one.say("LOGIN guest guest")
        answer = one.hear()
        if answer == "OK":
            clients.append(one)
        else:
            refusal = answer
        assert len(clients) < LIMIT
    assert "descriptor limit" in refusal
    assert clients
    assert server.descriptors() <= LIMIT - RESERVED + 1
    assert works(client, 2)
    assert client.ask("TOPIC wide 20") == "OK"                  # twenty more logs
    for k in range(3, 40):
        assert works(client, k)
    client.say(*(f"PUB - wide {k}" for k in range(40)))
    client.hear_upto("OK 79")
    for one in clients:
        one.close()
    assert heals(server)
    assert server.get("/health/ready")[0] == 200


def test_a_flood_of_connections_leaves_those_who_are_there_alone(server: Limited) -> None:
    client = server.client()
    assert client.ask("DECLARE q durable") == "OK"
    flood = burst(server, 400)
    for k in range(1, 30):
        assert works(client, k)
    flood += burst(server, 400)
    for k in range(30, 60):
        assert works(client, k)
    for one in flood:
        one.close()
    assert heals(server)
    assert server.get("/health/ready")[0] == 200
    assert len(server.log().splitlines()) < 200, "a flood of connections must not become a flood of lines"
    assert "internal error" not in server.log()


def heals(server: Server) -> bool:
    """New clients are served again, soon."""
    end = time.monotonic() + HEALED_S
    while time.monotonic() < end:
        try:
            one = Client(server.listeners["line"], login=False)
            one.socket.settimeout(PATIENCE_S)
            if one.ask("LOGIN guest guest") == "OK":
                return one.ask("PUB - q healed") == "OK 1"
        except ConnectionError:
            pass
        time.sleep(0.05)
    return False
