"""How long a start takes after kill -9: with a long log, with many queues, and the same without any checkpoint.

usage: python bench/recovery.py [--gib 2] [--queues 10000] [--dir DIR]
Prints one JSON line per start. `ready_s` is from the start of `trilogue serve` until it serves, the interpreter's own start included;
`recovered_bytes` were read to verify the logs, `replayed_bytes` to bring the state up to date. `same_state`: the queues hold the same with
and without checkpoints. The page cache is warm. What fills the data directory is a node in a process that kills itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from trilogue import tuning
from trilogue.config.load import load
from trilogue.core import batch
from trilogue.core.access import Identity
from trilogue.core.errors import BrokerError
from trilogue.core.message import ORIGIN_NATIVE, PERSISTENT, Run, native_span
from trilogue.core.publisher import Publisher
from trilogue.core.session import Session
from trilogue.node import Node

OFF = ("listeners.amqp.bind=", "listeners.mqtt.bind=", "listeners.stomp.bind=", "listeners.native.bind=", "listeners.http.bind=127.0.0.1:0",
       "storage.disk_low_bytes=1 MiB")
BODY_BYTES = 1_000
RUN = 250
LONG_QUEUES = 4
START_S_MAX = 600.0


class Source(Publisher):
    def __init__(self) -> None:
        super().__init__()
        self.sure = 0
        self.flowing = asyncio.Event()
        self.flowing.set()

    def confirmed(self, upto: int) -> None:
        self.sure = upto

    def confirmed_only(self, first: int, last: int) -> None:
        self.sure = last

    def refused(self, upto: int, error: BrokerError) -> None:
        raise error

    def refused_only(self, first: int, last: int, error: BrokerError) -> None:
        raise error

    def hold(self) -> None:
        self.flowing.clear()

    def release(self) -> None:
        self.flowing.set()


def settings(path: str) -> list[str]:
    return [*OFF, f"node.data_dir={json.dumps(path)}"]


def open_node(path: str, loop: asyncio.AbstractEventLoop) -> Node:
    return Node(load(None, {}, settings(path), []).config, loop, tuning.raise_descriptor_limit())


# ------------------------------------------------------------------------------------------------ in a process that kills itself

async def fill(path: str, queues: int, messages: int, body_bytes: int) -> None:
    """So many messages over so many queues, all confirmed, with a node's usual checkpoints."""
    node = open_node(path, asyncio.get_running_loop())
    await node.start()
    session = node.broker.open(Identity("guest", []), "/", node.broker.arrive(), "bench", "bench")
    names = [f"queue-{k}" for k in range(queues)]
    for k, name in enumerate(names):
        node.administration.declare_queue(session, name, True, False, False, {})
        if k % 500 == 0:
            await asyncio.sleep(0)
    await publish(node, session, names, messages, body_bytes)
    await asyncio.sleep(1.5)        # one checkpoint may or may not have been made since
    await publish(node, session, names[:LONG_QUEUES], LONG_QUEUES, body_bytes)
    os.kill(os.getpid(), signal.SIGKILL)


async def publish(node: Node, session: Session, names: list[str], messages: int, body_bytes: int) -> None:
    source = Source()
    span = native_span(b"", b"x" * body_bytes)
    run = min(RUN, messages // len(names))
    sent = 0
    while sent < messages:
        await source.flowing.wait()
        name = names[sent // run % len(names)].encode()
        node.broker.publish(session, source, Run(b"", name, ORIGIN_NATIVE, [span] * run, len(span) * run, PERSISTENT), True)
        sent += run
        if sent // run % 16 == 0:
            await asyncio.sleep(0)
    while source.sure < sent:
        await asyncio.sleep(0.001)


async def show_state(path: str) -> None:
    """Print what the queues hold, and die without changing anything."""
    node = open_node(path, asyncio.get_running_loop())
    state = {}
    for shard in node.broker.shards:
        for id, queue in shard.queues.items():
            state[str(id)] = [int(queue.waiting()), int(queue.size()), [int(lane.chain.next) for lane in queue.lanes]]
    print(json.dumps(state, sort_keys=True), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def child(*arguments: object) -> str:
    command = [sys.executable, __file__, *map(str, arguments)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.decode()
    return output.splitlines()[-1] if output else ""        # what comes before is the log


# ------------------------------------------------------------------------------------------------ measuring

def start(case: str, path: str) -> dict[str, object]:
    """Start a real broker on a data directory, wait until it serves, and kill it."""
    folder = pathlib.Path(path).parent
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "trilogue", "serve", "--ready-file", str(ready)]
    for setting in settings(path):
        command += ["--set", setting]
    begin = time.perf_counter()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        while not ready.exists() and process.poll() is None and time.perf_counter() - begin < START_S_MAX:
            time.sleep(0.005)
        took = time.perf_counter() - begin
        process.kill()
        process.wait()
    text = (folder / "log").read_text()
    if not ready.exists():
        raise SystemExit(f"the broker did not start: {text[-2_000:]}")
    opened = next(line for line in map(json.loads, text.splitlines()) if line["event"] == "opened")
    return {"case": case, "build": build(), "ready_s": round(took, 2), "queues": opened["queues"], "log_bytes": log_bytes(path),
            "recovered_bytes": opened["recovered_bytes"], "replayed_bytes": opened["replayed_bytes"]}


def log_bytes(path: str) -> int:
    return sum(file.stat().st_size for file in pathlib.Path(path).glob("logs/*/*.log"))


def build() -> str:
    return "plain" if str(batch.__file__).endswith(".py") else "compiled"


def measure(case: str, queues: int, messages: int, body_bytes: int, dir: str | None) -> None:
    folder = tempfile.mkdtemp(prefix="trilogue-recovery-", dir=dir)
    path = f"{folder}/data"
    try:
        child("--fill", path, queues, messages, body_bytes)
        print(json.dumps(start(case, path)), flush=True)
        state = child("--state", path)
        shutil.rmtree(f"{path}/checkpoints")
        result = start(f"{case}, without checkpoints", path)
        shutil.rmtree(f"{path}/checkpoints")
        print(json.dumps({**result, "same_state": bool(state) and child("--state", path) == state}), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the long log")
    parser.add_argument("--queues", type=int, default=10_000, help="how many queues, each with one message")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--fill", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill:
        path, queues, messages, body_bytes = args.fill
        asyncio.run(fill(path, int(queues), int(messages), int(body_bytes)))
    elif args.state:
        asyncio.run(show_state(args.state))
    else:
        messages = int(args.gib * (1 << 30)) // BODY_BYTES
        measure(f"{args.gib:g} GiB of log", LONG_QUEUES, messages - messages % (RUN * LONG_QUEUES), BODY_BYTES, args.dir)
        measure(f"{args.queues} queues with one message each", args.queues, args.queues, 100, args.dir)


if __name__ == "__main__":
    main()
