"""A `trilogue serve` in a process of its own. Restarting it keeps its port and its data directory, whether it was asked to end or killed."""

from __future__ import annotations

import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

PATIENCE_S = 30.0
LISTENERS_OFF = ("mqtt", "stomp", "http", "native")
# A blocking client does not read while the test restarts the broker, so waiting for it to say goodbye is in vain.
SETTINGS = ("node.drain_timeout_ms=300", "storage.disk_low_bytes=1 MiB")
# Below the ports that the system gives to outgoing connections: a client that keeps trying while the broker is away must not meet itself.
PORTS = range(20_000, 32_000)


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.01)


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Broker:
    """`trilogue serve` with data of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def command(self, ready: pathlib.Path) -> list[str]:
        settings = [f"listeners.amqp.bind=127.0.0.1:{self.port}", *(f"listeners.{name}.bind=" for name in LISTENERS_OFF), *SETTINGS]
        command = [sys.executable, "-m", "trilogue", "serve", "--data-dir", str(self.folder / "data"), "--ready-file", str(ready)]
        return command + [word for setting in settings for word in ("--set", setting)]

    def start(self) -> None:
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = process = subprocess.Popen(self.command(ready), stdout=log, stderr=log, cwd=self.folder)
        eventually(lambda: ready.exists() or process.poll() is not None, f"the broker starts: {self.log()}")
        assert process.poll() is None, self.log()
        assert json.loads(ready.read_text())["listeners"]["amqp"] == f"127.0.0.1:{self.port}"

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def restart(self, how: signal.Signals) -> None:
        """End it, by SIGTERM or SIGKILL, and start it again where it was."""
        code = self.end(how)
        assert code == (0 if how == signal.SIGTERM else -how), self.log()
        self.start()

    def log(self) -> str:
        return (self.folder / "log").read_text()
