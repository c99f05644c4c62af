"""Celery: two worker processes, one with its results in the broker (rpc) and one with them in files, which chords need.

The workers run with gossip, mingle, heartbeats and remote control, as they do by default, so their event exchanges, their pidbox queues and
their answers are part of every test. What they run is in celery_tasks.py.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from amqp import AccessRefused
from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError
from kombu import Queue

from interop_tests.broker import PATIENCE_S, Broker, eventually
from interop_tests.wire import Wire

ROOT = pathlib.Path(__file__).parents[1]
URGENT = Queue("urgent", queue_arguments={"x-max-priority": 10})


class Worker:
    """`celery worker` with one process for tasks; `app` is a client of it."""

    def __init__(self, folder: pathlib.Path, queue: str, results: str, broker: Broker) -> None:
        self.wire = Wire(broker.port)
        self.notes = folder / f"{queue}.notes"
        self.log = folder / f"{queue}.log"
        self.node = f"{queue}@here"
        self.app = Celery(queue, broker=broker.url, backend=results)
        self.app.conf.update(task_default_queue=queue, task_queues=[Queue(queue), URGENT], broker_transport_options={"confirm_publish": True},
                             task_publish_retry_policy={"interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5, "max_retries": 50})
        environment = {"INTEROP_BROKER": self.wire.url, "INTEROP_RESULTS": results, "INTEROP_QUEUE": queue, "INTEROP_NOTES": str(self.notes)}
        command = [sys.executable, "-m", "celery", "-A", "interop_tests.celery_tasks", "worker", "-n", self.node, "-Q", queue, "-c1", "-lINFO"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True)

    def wait_until_ready(self) -> None:
        eventually(lambda: " ready." in self.log.read_text() or self.process.poll() is not None, f"the worker starts: {self.log.read_text()}")
        assert self.process.poll() is None, self.log.read_text()

    def noted(self) -> list[str]:
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    def close(self) -> None:
        self.app.close()
        with contextlib.suppress(ProcessLookupError):       # it leads a group of its own, so its children go with it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.wire.close()


@pytest.fixture(scope="module")
def workers(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    folder = tmp_path_factory.mktemp("celery")
    (folder / "results").mkdir()
    made = {"rpc": Worker(folder, "rpc", "rpc://", broker), "files": Worker(folder, "files", f"file://{folder}/results", broker)}
    try:
        for worker in made.values():
            worker.wait_until_ready()
        yield made
    finally:
        for worker in made.values():
            worker.close()


@pytest.fixture
def rpc(workers: dict[str, Worker]) -> Worker:
    return workers["rpc"]


@pytest.fixture
def files(workers: dict[str, Worker]) -> Worker:
    return workers["files"]


def test_results(rpc: Worker) -> None:
    results = [rpc.app.send_task("add", (number, 1)) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))


def test_a_failure_comes_back(rpc: Worker) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        rpc.app.send_task("fail", ("on purpose",)).get(timeout=PATIENCE_S)


def test_chain_and_group(rpc: Worker) -> None:
    add = rpc.app.signature
    assert chain(add("add", (1, 2)), add("add", (10,)), add("add", (100,)), app=rpc.app).apply_async().get(timeout=PATIENCE_S) == 113
    assert group([add("add", (number, number)) for number in range(5)], app=rpc.app).apply_async().get(timeout=PATIENCE_S) == [0, 2, 4, 6, 8]


def test_chord(files: Worker) -> None:
    header = [files.app.signature("add", (number, number)) for number in range(8)]
    assert chord(header, app=files.app)(files.app.signature("total")).get(timeout=PATIENCE_S) == 56


def test_retries(rpc: Worker) -> None:
    assert rpc.app.send_task("third_time_lucky").get(timeout=PATIENCE_S) == 3


def test_eta(rpc: Worker) -> None:
    """The worker takes them all, and keeps two for later."""
    results = [rpc.app.send_task("remember", (f"after {seconds}",), countdown=seconds) for seconds in (1.2, 0.6, 0)]
    for result in results:
        result.get(timeout=PATIENCE_S)
    assert [line for line in rpc.noted() if line.startswith("after")] == ["after 0", "after 0.6", "after 1.2"]


def test_priorities(rpc: Worker) -> None:
    """The queue is filled first; then the worker is told to consume it."""
    results = [rpc.app.send_task("remember", (f"priority {priority}",), queue="urgent", priority=priority) for priority in (1, 9, 5, 9, 0)]
    answer = rpc.app.control.add_consumer("urgent", destination=[rpc.node], reply=True, timeout=PATIENCE_S, limit=1)
    assert "ok" in answer[0][rpc.node]
    for result in results:
        result.get(timeout=PATIENCE_S)
    assert [line for line in rpc.noted() if line.startswith("priority")] == [f"priority {priority}" for priority in (9, 9, 5, 1, 0)]
    rpc.app.control.cancel_consumer("urgent", destination=[rpc.node], reply=True, timeout=PATIENCE_S, limit=1)


def test_revoke_before_it_begins(rpc: Worker) -> None:
    result = rpc.app.send_task("remember", ("revoked",), countdown=0.8)
    rpc.app.control.revoke(result.id, destination=[rpc.node], reply=True, timeout=PATIENCE_S, limit=1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE_S)
    assert "revoked" not in rpc.noted()


def test_revoke_while_it_runs(rpc: Worker, tmp_path: pathlib.Path) -> None:
    result = rpc.app.send_task("wait_for", (f"{tmp_path}/never",))
    eventually(lambda: f"began {tmp_path}/never" in rpc.noted(), "the task runs")
    rpc.app.control.revoke(result.id, terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE_S)
    assert rpc.app.send_task("add", (1, 1)).get(timeout=PATIENCE_S) == 2


def test_remote_control(workers: dict[str, Worker], rpc: Worker) -> None:
    nodes = {worker.node for worker in workers.values()}
    answers = rpc.app.control.ping(timeout=PATIENCE_S, limit=2)
    assert {node for answer in answers for node in answer} == nodes
    inspect = rpc.app.control.inspect([rpc.node], timeout=PATIENCE_S, limit=1)
    assert "rpc" in [queue["name"] for queue in inspect.active_queues()[rpc.node]]


def test_redelivery_after_a_lost_connection(files: Worker, tmp_path: pathlib.Path) -> None:
    """A task is acknowledged when it is done, so one that runs while the connection is lost comes again."""
    result = files.app.send_task("wait_for", (f"{tmp_path}/go",))
    eventually(lambda: files.noted().count(f"began {tmp_path}/go") == 1, "the task runs")
    files.wire.cut()
    (tmp_path / "go").touch()
    assert result.get(timeout=PATIENCE_S) == f"{tmp_path}/go"
    eventually(lambda: files.noted().count(f"began {tmp_path}/go") == 2, "the task runs again")


def test_errors_have_their_codes(broker: Broker) -> None:
    app = Celery("refused", broker=broker.url.replace("guest:guest", "guest:wrong"))
    with app.connection() as connection, pytest.raises(AccessRefused, match="403"):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_restart(broker: Broker, files: Worker) -> None:
    """Tasks that wait in the broker survive it, and so does the worker. Once only: the worker takes seconds to come back."""
    later = [files.app.send_task("add", (number, 0), countdown=0.1) for number in range(5)]
    broker.restart(signal.SIGTERM)
    after = [files.app.send_task("add", (number, 0), retry=True) for number in range(5, 10)]
    assert [result.get(timeout=PATIENCE_S) for result in later + after] == list(range(10))
