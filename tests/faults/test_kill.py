"""kill -9 of a real `trilogue serve` under load, again and again: nothing confirmed is lost, nothing comes in another order, nothing that
was settled comes back, and what comes twice says so. `make crash CYCLES=200` is the long version.

The moments are random: while it starts, while it writes, checkpoints or deletes segments (all of which happen all the time here).
"""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import time

from tests.cli.server import Server
from tests.faults.load import DeadModel, QueueModel, Source, TopicWorker, TransientWorker, Worker, read_out, run

CYCLES = int(os.environ.get("CYCLES", "4"))
LIFE_S = 1.0
DRAIN_S = 60.0
HERE = pathlib.Path(__file__).parent
SETTINGS = ("node.plugins=line=load_frontend:LoadFrontend", "storage.checkpoint_interval_ms=40", "storage.segment_bytes=1 MiB",
            "limits.message_bytes_max=1 MiB", "limits.batch_bytes_max=1 MiB")
CONFIG = """
queues = [
    {name = "one"}, {name = "two"}, {name = "left"}, {name = "right"}, {name = "dead"},
    {name = "work", arguments = {"x-dead-letter-exchange" = "", "x-dead-letter-routing-key" = "dead"}},
    {name = "ranked", arguments = {"x-max-priority" = 4}},
]
bindings = [{source = "amq.fanout", destination = "left"}, {source = "amq.fanout", destination = "right"}]
topics = [{name = "history"}]
"""


class Doomed(Server):
    """One that may be killed before it is ready."""

    def environ(self) -> dict[str, str]:
        environ = super().environ()
        return {**environ, "PYTHONPATH": os.pathsep.join([str(HERE), environ["PYTHONPATH"]])}

    def stillborn(self, after_s: float) -> None:
        """Killed during its start."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=log, env=self.environ(), cwd=self.folder)
        time.sleep(after_s)
        process.kill()
        process.wait()


def make_workers() -> list[Worker]:
    sources = {name: Source(name) for name in ("one", "two", "left", "right", "work", "dead", "ranked", "passing", "history")}
    fan = [sources["left"], sources["right"]]
    work = QueueModel("work", [sources["work"]])
    return [
        Worker(sources["one"], QueueModel("one", [sources["one"]]), "-", "one", 0, False, 1),
        Worker(sources["two"], QueueModel("two", [sources["two"]]), "-", "two", 0, False, 2),
        Worker(sources["left"], QueueModel("left", fan), "amq.fanout", "any", 0, False, 3),
        Worker(sources["right"], QueueModel("right", fan), "amq.fanout", "any", 0, False, 4),
        Worker(sources["work"], work, "-", "work", 0, True, 5),
        Worker(sources["dead"], DeadModel("dead", [sources["dead"]], work), "-", "dead", 0, False, 6),
        Worker(sources["ranked"], QueueModel("ranked", [sources["ranked"]]), "-", "ranked", 5, False, 7),
        TransientWorker(sources["passing"], QueueModel("passing", [sources["passing"]]), "-", "passing", 0, False, 8),
        TopicWorker(sources["history"], "history", 9),
    ]


def live(server: Doomed, workers: list[Worker], seconds: float) -> None:
    with server:
        for worker in workers:
            worker.connect(server.listeners["line"], draining=False)
        assert run(workers, seconds, lambda: False), server.log()[-2_000:]
        server.kill()
        read_out(workers)


def drain(server: Doomed, workers: list[Worker]) -> None:
    with server:
        for worker in workers:
            worker.connect(server.listeners["line"], draining=True)
        assert run(workers, DRAIN_S, lambda: all(worker.is_drained() for worker in workers)), server.log()[-2_000:]
        for worker in workers:
            worker.check()
        assert server.stop() == 0
        read_out(workers)


def test_nothing_confirmed_is_lost_when_the_broker_is_killed(tmp_path: pathlib.Path) -> None:
    rng = random.Random(CYCLES)
    config = tmp_path / "trilogue.toml"
    config.write_text(CONFIG)
    server = Doomed(tmp_path, SETTINGS, config)
    workers = make_workers()
    start_s = 1.0
    for cycle in range(CYCLES):
        if cycle % 3 == 1:
            server.stillborn(rng.uniform(0.2, 1.1) * start_s)
        began = time.monotonic()
        live(server, workers, rng.uniform(0.05, LIFE_S))
        start_s = max(0.2, time.monotonic() - began - LIFE_S)
    drain(server, workers)
    log = server.log()
    assert "internal error" not in log and "refused" not in log and "damage" not in log
    assert sum(len(worker.source.confirmed) for worker in workers) > 100 * CYCLES
