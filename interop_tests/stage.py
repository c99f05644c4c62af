"""A stage for clients that are not written in Python: a program plays a scene, and asks for what only the outside can do.

A program prints `ask WHAT` and reads a line when that is done: `cut` ends its connections, `terminate` and `kill` restart the broker. It ends
with 0 if everything was as it should be; what it printed is shown otherwise.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

from interop_tests.broker import PATIENCE_S, Broker
from interop_tests.wire import Wire

HINT = "`make test` installs it, or prints how to; .ci/debian names the packages"


class Stage:
    def __init__(self, broker: Broker, wire: Wire) -> None:
        self.asks: dict[str, Callable[[], None]] = {
            "cut": wire.cut,
            "terminate": lambda: broker.restart(signal.SIGTERM),
            "kill": lambda: broker.restart(signal.SIGKILL),
        }

    def play(self, command: Sequence[str], **environment: str) -> None:
        lines: list[str] = []
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, **environment})
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("ask "):
                    self.asks[line.split()[1]]()
                    self.answer(process.stdin)
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.communicate()
        assert code == 0, "".join(lines)

    @staticmethod
    def answer(program: IO[str]) -> None:
        try:
            program.write("done\n")
            program.flush()
        except BrokenPipeError:
            pass        # It did not survive what it asked for; its last lines tell why.


def command(name: str) -> str:
    """Where a command of a client is."""
    path = shutil.which(name)
    assert path is not None, f"{name} is not installed; {HINT}"
    return path


def installed(path: pathlib.Path) -> pathlib.Path:
    """A library of a client, which must be there."""
    assert path.exists(), f"{path} is not there; {HINT}"
    return path
