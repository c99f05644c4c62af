"""The disk reports that a sync failed. Nobody knows then what is on it: the partition stops, says why, and takes nothing more, the others go on,
and everything that was confirmed is there after a restart.

The error is injected by a library that is loaded before the C library's own functions. It fails the syncs of files whose path contains what
a control file says.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.server import Client, Server

SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(int fd, int whole) {
    char wanted[256], name[64], path[4096];
    int control = open(getenv("FAULT_CONTROL"), O_RDONLY);
    if (control < 0) return 0;
    ssize_t n = read(control, wanted, sizeof wanted - 1);
    close(control);
    if (n <= 0) return 0;
    wanted[n] = 0;
    if (whole) return 1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    n = readlink(name, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strstr(path, wanted) != NULL;
}

static int answer(int fd, int whole, long number) {
    if (fails(fd, whole)) { errno = EIO; return -1; }
    return syscall(number, fd);
}

int fsync(int fd) { return answer(fd, 0, SYS_fsync); }
int fdatasync(int fd) { return answer(fd, 0, SYS_fdatasync); }
int syncfs(int fd) { return answer(fd, 1, SYS_syncfs); }
"""
QUEUES = [f"queue{k}" for k in range(8)]
COUNT = 20


class Faulty(Server):
    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        source, self.library = folder / "shim.c", folder / "shim.so"
        source.write_text(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source)], check=True)
        self.control = folder / "control"

    def environ(self) -> dict[str, str]:
        return {**super().environ(), "LD_PRELOAD": str(self.library), "FAULT_CONTROL": str(self.control)}

    def log_of(self, queue: str) -> str:
        """The folder of the log that has the queue's messages."""
        text = f"{queue}-body-".encode()
        found = {file.parent.name for file in (self.folder / "data" / "logs").glob("*/*.log") if text in file.read_bytes()}
        assert len(found) == 1
        return found.pop()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Faulty]:
    with Faulty(tmp_path) as server:
        yield server


def fill(client: Client) -> None:
    for queue in QUEUES:
        assert client.ask(f"DECLARE {queue} durable") == "OK"
    client.say(*(f"PUB - {queue} {queue}-body-{k}" for k in range(COUNT) for queue in QUEUES))
    client.hear_upto(f"OK {COUNT * len(QUEUES)}")


def bodies(server: Server, queue: str, count: int) -> list[str]:
    client = server.client()
    assert client.ask(f"SUB {queue} {count}") == "OK"
    got = [client.hear().split(" ")[3] for _ in range(count)]
    client.close()
    return got


def test_a_failed_sync_stops_its_partition_and_no_other(server: Faulty) -> None:
    client = server.client()
    fill(client)
    sick = QUEUES[0]
    folder = server.log_of(sick)
    healthy = next(queue for queue in QUEUES if server.log_of(queue) != folder)
    taker = server.client()
    assert taker.ask(f"SUB {sick} 1") == "OK"
    assert taker.hear().endswith(f"{sick}-body-0")
    assert server.get("/health/ready")[0] == 200

    server.control.write_text(f"/{folder}/")
    victim = server.client()
    answer = victim.ask(f"PUB - {sick} {sick}-body-unsure")
    assert answer.startswith("ERR 1 ") and "sync failed" in answer and "Input/output error" in answer
    answer = victim.ask(f"PUB - {sick} {sick}-body-never")
    assert answer.startswith("ERR") and "sync failed" in answer
    assert taker.hear().startswith("ERR")                               # its consumer is told
    other = server.client()
    assert other.ask(f"PUB - {healthy} {healthy}-body-after") == "OK 1"
    assert bodies(server, healthy, COUNT + 1) == [*(f"{healthy}-body-{k}" for k in range(COUNT)), f"{healthy}-body-after"]
    status, text = server.get("/health/ready")
    assert status == 503 and "sync failed" in text and str(int(folder, 16)) in text

    server.control.unlink()                     # the disk seems to work again: that proves nothing about what was written before
    assert victim.ask(f"PUB - {sick} {sick}-body-never").startswith("ERR")
    assert server.get("/health/ready")[0] == 503
    assert other.ask(f"PUB - {healthy} {healthy}-body-later") == "OK 2"

    server.kill()
    server.start()
    assert server.get("/health/ready")[0] == 200
    for queue in QUEUES:
        assert bodies(server, queue, COUNT) == [f"{queue}-body-{k}" for k in range(COUNT)]
    assert server.client().ask(f"PUB - {sick} {sick}-body-again") == "OK 1"


def test_when_every_sync_fails_nothing_is_confirmed(server: Faulty) -> None:
    client = server.client()
    fill(client)
    server.control.write_text("/logs/")
    victim = server.client()
    for k, queue in enumerate(QUEUES):
        assert victim.ask(f"PUB - {queue} {queue}-body-unsure").startswith("ERR"), k
    assert server.client().ask("DECLARE another durable").startswith("ERR")
    assert server.get("/health/ready")[0] == 503
    assert server.get("/health/live")[0] == 200
    server.kill()
    server.control.unlink()
    server.start()
    for queue in QUEUES:
        assert bodies(server, queue, COUNT) == [f"{queue}-body-{k}" for k in range(COUNT)]
