"""The application that Celery's workers run in test_celery.py. The environment says where the broker, the results and the notes are."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

from celery import Celery
from kombu import Queue

NOTES = pathlib.Path(os.environ["INTEROP_NOTES"])

app = Celery("interop", broker=os.environ["INTEROP_BROKER"], backend=os.environ["INTEROP_RESULTS"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    task_queues=[Queue("rpc"), Queue("files"), Queue("urgent", queue_arguments={"x-max-priority": 10})],
    task_default_queue=os.environ["INTEROP_QUEUE"],
    task_acks_late=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


def note(text: str) -> None:
    """Leave a trace that does not depend on the broker."""
    with NOTES.open("a") as file:
        file.write(f"{text}\n")


@app.task(name="add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="remember")
def remember(text: str) -> str:
    note(text)
    return text


@app.task(name="third_time_lucky", bind=True, max_retries=3)
def third_time_lucky(self: Any) -> int:
    tries: int = self.request.retries + 1
    if tries < 3:
        raise self.retry(countdown=0.1)
    return tries


@app.task(name="fail")
def fail(reason: str) -> None:
    raise ValueError(reason)


@app.task(name="wait_for")
def wait_for(path: str) -> str:
    """Runs until a file appears."""
    note(f"began {path}")
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
    return path
