"""A real `trilogue serve` in a process of its own, or a node in this one, both with the line frontend as a plug-in, and a client for it."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from trilogue.config.load import load
from trilogue.config.model import Config
from trilogue.node import Node

HERE = pathlib.Path(__file__).parent
PLUGINS = HERE.parent / "frontends"
SETTINGS = ("node.plugins=line=line_frontend:LineFrontend", "listeners.line.bind=127.0.0.1:0", "listeners.http.bind=127.0.0.1:0",
            "listeners.amqp.bind=", "listeners.mqtt.bind=", "listeners.stomp.bind=", "listeners.native.bind=", "storage.disk_low_bytes=1 MiB",
            "storage.checkpoint_map_bytes=64 MiB", "node.drain_timeout_ms=2000")
PATIENCE_S = 30.0


class Client:
    """Talks to the line frontend. Blocking, with a time limit on everything."""

    def __init__(self, address: str, login: bool = True, receive_bytes: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((host, int(port)))
        self.file = self.socket.makefile("rb")
        if login:
            assert self.ask("LOGIN guest guest") == "OK"

    def say(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def hear(self) -> str:
        """The next line; empty at the end."""
        return self.file.readline().decode().rstrip("\n")

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def hear_upto(self, last: str) -> list[str]:
        lines = []
        while not lines or lines[-1] != last:
            line = self.hear()
            assert line, f"the end came before {last}: {lines[-3:]}"
            lines.append(line)
        return lines

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class Server:
    def __init__(self, folder: pathlib.Path, settings: Sequence[str] = (), config: pathlib.Path | None = None) -> None:
        self.folder = folder
        self.settings = [*SETTINGS, *settings]
        self.config = config
        self.ready_file = folder / "ready"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "trilogue", "serve", "--data-dir", str(self.folder / "data"), "--ready-file", str(self.ready_file)]
        if self.config is not None:
            command += ["--config", str(self.config)]
        for setting in self.settings:
            command += ["--set", setting]
        return command

    def environ(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}

    def start(self) -> Server:
        self.ready_file.unlink(missing_ok=True)
        with (self.folder / "out").open("ab") as out, (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=out, stderr=log, env=self.environ(), cwd=self.folder)
        until = time.monotonic() + PATIENCE_S
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.01)
        self.listeners: dict[str, str] = json.loads(self.ready_file.read_text())["listeners"]
        return self

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def out(self) -> str:
        return (self.folder / "out").read_text()

    def client(self, login: bool = True) -> Client:
        return Client(self.listeners["line"], login)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.listeners['http']}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_for_log(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.log():
            assert time.monotonic() < until, self.log()
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.end()

    def end(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.kill()


class Embedded:
    """A node on a loop in a thread of this process, so that a test can look inside: `call` runs a function on that loop."""

    def __init__(self, folder: pathlib.Path, settings: Sequence[str] = ()) -> None:
        data_dir = f"node.data_dir={json.dumps(str(folder / 'data'))}"
        self.settings = [*SETTINGS, "node.plugins=line=tests.frontends.line_frontend:LineFrontend", data_dir, *settings]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def config(self, settings: Sequence[str] = ()) -> Config:
        return load(None, {}, [*self.settings, *settings], []).config

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run on the loop, and return or raise what it does."""

        async def run() -> Any:
            result = function(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE_S)

    def start(self) -> Embedded:
        if not self.thread.is_alive():
            self.thread.start()
        self.node: Node = self.call(Node, self.config(), self.loop, 20_000)
        try:
            self.call(self.node.start)
        except BaseException:
            self.call(self.node.stop)
            raise
        self.broker = self.node.broker
        return self

    def client(self, login: bool = True) -> Client:
        return Client(self.node.addresses["line"], login)

    def connections(self) -> list[Any]:
        frontend: Any = self.node.frontends["line"]
        return self.call(lambda: list(frontend.peers))

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds on the loop."""
        end = time.monotonic() + PATIENCE_S
        while not self.call(condition):
            assert time.monotonic() < end
            time.sleep(0.005)

    def queue(self, name: str) -> Any:
        return self.broker.queue(self.broker.catalog.destination("/", name).id)

    def stop(self) -> None:
        self.call(self.node.stop)

    def __enter__(self) -> Embedded:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if not self.node.closed:
            self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()
