"""The C library (librabbitmq), through the commands of Debian's amqp-tools."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
from collections.abc import Iterator

from interop_tests.broker import PATIENCE_S, Broker, eventually
from interop_tests.stage import command
from interop_tests.wire import Wire


def run(port: int, tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One command, whatever it ends with."""
    words = [command(tool), "--server=127.0.0.1", f"--port={port}", *arguments]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S)


def done(port: int, tool: str, *arguments: str, stdin: str = "") -> str:
    """What a command that succeeds prints."""
    ended = run(port, tool, *arguments, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@contextlib.contextmanager
def consumer(port: int, queue: str, seen: pathlib.Path, then: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`amqp-consume`, whose command notes every message in a file, and then does something."""
    script = seen.with_suffix(".sh")        # amqp-consume takes the options of its command for its own, so it gets none
    script.write_text(f'cat >> "{seen}"; echo >> "{seen}"; {then}')
    words = [command("amqp-consume"), "--server=127.0.0.1", f"--port={port}", f"--queue={queue}", *arguments, "sh", str(script)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def noted(seen: pathlib.Path) -> list[str]:
    return seen.read_text().split() if seen.exists() else []


def test_declare(broker: Broker, name: str) -> None:
    assert done(broker.port, "amqp-declare-queue", f"--queue={name}", "--durable").strip() == name
    assert done(broker.port, "amqp-declare-queue", f"--queue={name}", "--durable").strip() == name
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--body=one")
    assert done(broker.port, "amqp-delete-queue", f"--queue={name}").strip() == "1"


def test_publish_and_get(broker: Broker, name: str) -> None:
    done(broker.port, "amqp-declare-queue", f"--queue={name}")
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--persistent", "--content-type=text/plain", "--header=colour: red", stdin="stdin")
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--line-buffered", stdin="a\nb\n")
    large = "x" * 400_000
    done(broker.port, "amqp-publish", f"--routing-key={name}", stdin=large)
    assert [done(broker.port, "amqp-get", f"--queue={name}").strip() for _ in range(4)] == ["stdin", "a", "b", large]
    assert run(broker.port, "amqp-get", f"--queue={name}").returncode == 2


def test_consume_with_acks_and_prefetch(broker: Broker, tmp_path: pathlib.Path, name: str) -> None:
    done(broker.port, "amqp-declare-queue", f"--queue={name}")
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--line-buffered", stdin="1\n2\n3\n4\n5\n")
    with consumer(broker.port, name, tmp_path / "seen", "true", "--count=3", "--prefetch-count=1") as process:
        assert process.wait(PATIENCE_S) == 0
    assert noted(tmp_path / "seen") == ["1", "2", "3"]
    # What was prefetched and not acknowledged is there again, and what was acknowledged is not.
    assert [done(broker.port, "amqp-get", f"--queue={name}").strip() for _ in range(2)] == ["4", "5"]
    assert run(broker.port, "amqp-get", f"--queue={name}").returncode == 2


def test_consume_from_an_exchange(broker: Broker, tmp_path: pathlib.Path, name: str) -> None:
    """A queue that the broker names, bound to an exchange that is there, and gone with its consumer."""
    seen = tmp_path / "seen"
    with consumer(broker.port, "", seen, "true", "--exchange=amq.topic", f"--routing-key={name}.#"):
        eventually(lambda: done(broker.port, "amqp-publish", "--exchange=amq.topic", f"--routing-key={name}.x", "--body=heard") == "" and noted(seen),
                   "the consumer is bound")
    assert set(noted(seen)) == {"heard"}


def test_redelivery_after_a_lost_connection(broker: Broker, wire: Wire, tmp_path: pathlib.Path, name: str) -> None:
    done(broker.port, "amqp-declare-queue", f"--queue={name}")
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--line-buffered", stdin="1\n2\n")
    with consumer(wire.port, name, tmp_path / "seen", f'while [ ! -e "{tmp_path}/go" ]; do sleep 0.02; done', "--prefetch-count=10") as process:
        eventually(lambda: noted(tmp_path / "seen") == ["1"], "the first message is being worked on")
        assert run(broker.port, "amqp-get", f"--queue={name}").returncode == 2
        wire.cut()
        (tmp_path / "go").touch()
        assert process.wait(PATIENCE_S) != 0
    with consumer(broker.port, name, tmp_path / "again", "true", "--count=2") as process:
        assert process.wait(PATIENCE_S) == 0
    assert noted(tmp_path / "again") == ["1", "2"]


def test_errors_have_their_codes(broker: Broker, name: str) -> None:
    """The commands know no mandatory flag and no confirms, but they say what is wrong with the code of the broker."""
    missing = run(broker.port, "amqp-get", f"--queue={name}")
    assert missing.returncode != 0
    assert "404" in missing.stderr
    done(broker.port, "amqp-declare-queue", f"--queue={name}", "--durable")
    other = run(broker.port, "amqp-declare-queue", f"--queue={name}")
    assert "406" in other.stderr
    refused = run(broker.port, "amqp-get", "--username=guest", "--password=wrong", f"--queue={name}")
    assert refused.returncode != 0
    assert "403" in refused.stderr or "ACCESS_REFUSED" in refused.stderr


def test_restart(broker: Broker, tmp_path: pathlib.Path, name: str, ending: signal.Signals) -> None:
    done(broker.port, "amqp-declare-queue", f"--queue={name}", "--durable")
    done(broker.port, "amqp-publish", f"--routing-key={name}", "--persistent", "--line-buffered", stdin="1\n2\n3\n")
    # The commands wait for no confirm, so this makes sure that the messages are on disk.
    assert done(broker.port, "amqp-declare-queue", f"--queue={name}-second", "--durable").strip() == f"{name}-second"
    go = tmp_path / "go"
    with consumer(broker.port, name, tmp_path / "seen", f'while [ ! -e "{go}" ]; do sleep 0.02; done') as process:
        eventually(lambda: noted(tmp_path / "seen") == ["1"], "the first message is being worked on")
        broker.restart(ending)
        go.touch()
        assert process.wait(PATIENCE_S) != 0
    with consumer(broker.port, name, tmp_path / "again", "true", "--count=3") as process:
        assert process.wait(PATIENCE_S) == 0
    assert noted(tmp_path / "again") == ["1", "2", "3"]
