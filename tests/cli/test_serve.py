from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading

import pytest

from tests.cli.server import PATIENCE_S, Client, Server


def refused(server: Server) -> str:
    """What a start that must fail says."""
    done = subprocess.run(server.command(), env=server.environ(), capture_output=True, text=True, timeout=PATIENCE_S, cwd=server.folder, check=False)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert not done.stdout
    return done.stderr


def test_a_life(tmp_path: pathlib.Path) -> None:
    with Server(tmp_path) as server:
        assert server.process is not None
        ready = json.loads(server.ready_file.read_text())
        assert ready["pid"] == server.process.pid
        assert sorted(ready["listeners"]) == ["http", "line"]
        assert sorted(server.out().splitlines()) == sorted([*(f"{name} {address}" for name, address in ready["listeners"].items()), "ready"])
        assert server.out().splitlines()[-1] == "ready"
        client = server.client()
        assert client.ask("DECLARE q durable") == "OK"
        assert client.ask("PUB - q stays") == "OK 1"
        assert server.stop() == 0
        assert client.hear() == ""
        assert not server.ready_file.exists()
        assert [path.name for path in tmp_path.glob("ready*")] == []
        server.start()
        client = server.client()
        assert client.ask("SUB q") == "OK"
        assert client.hear() == "MSG 1 0 stays"
        assert server.stop() == 0


def test_interrupted_from_the_keyboard(tmp_path: pathlib.Path) -> None:
    with Server(tmp_path) as server:
        server.signal(signal.SIGINT)
        assert server.end() == 0


def test_a_data_directory_in_use(tmp_path: pathlib.Path) -> None:
    with Server(tmp_path) as server:
        assert server.process is not None
        second = Server(tmp_path)
        second.ready_file = tmp_path / "second"
        assert f"is in use by process {server.process.pid}" in refused(second)
        assert server.client().ask("DECLARE q durable") == "OK"


def test_a_newer_format(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format").write_text("trilogue data format 999\n")
    assert "has format 999" in refused(Server(tmp_path))


def test_a_cluster_is_refused_in_words(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path, ["coordination.kind=zookeeper", "coordination.hosts=127.0.0.1:2181", "listeners.replication.bind=127.0.0.1:0"])
    assert "clusters are not part of this version yet" in refused(server)


def test_a_data_directory_that_is_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").mkdir()
    assert "data cannot be used" in refused(Server(tmp_path))


def test_a_taken_port_is_named(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(Server(tmp_path, [f"listeners.line.bind=127.0.0.1:{port}"]))
    assert f"trilogue: address 127.0.0.1:{port} of listener line is taken" in said
    with Server(tmp_path) as server:        # and nothing is left that would keep the next start from working
        assert server.stop() == 0


def test_a_plugin_that_cannot_be_loaded(tmp_path: pathlib.Path) -> None:
    said = refused(Server(tmp_path, ["node.plugins=line=no_such_module:Line"]))
    assert "frontend line (no_such_module:Line) cannot be loaded" in said


def test_reload(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "t.toml"
    config.write_text("")
    with Server(tmp_path, config=config) as server:
        config.write_text("[limits]\nmessage_bytes_max = 1024\n[node]\nrack = 'r'\n[[queues]]\nname = 'new'\n")
        server.signal(signal.SIGHUP)
        server.wait_for_log("configuration reloaded")
        client = server.client()
        assert "larger than configured max size 1024" in client.ask(f"PUB - new {'x' * 200_000}")
        assert client.ask("PUB - new small") == "OK 1"
        assert '"node.rack", "old": "", "new": "r", "event": "changes only with a restart"' in server.log().replace('"key": ', "")
        config.write_text("[limits]\nmessage_bytes_max = 'much'\n")
        server.signal(signal.SIGHUP)
        server.wait_for_log("configuration not reloaded")
        assert "limits.message_bytes_max" in server.log()
        assert "larger than configured max size 1024" in client.ask(f"PUB - new {'x' * 200_000}")
        assert server.stop() == 0


def test_health_and_metrics(tmp_path: pathlib.Path) -> None:
    with Server(tmp_path) as server:
        client = server.client()
        client.ask("DECLARE q durable")
        client.ask("PUB - q hello")
        client.ask("PUB - nowhere hello")
        assert server.get("/health/live") == (200, '{"status": "ok"}')
        assert server.get("/health/ready") == (200, '{"status": "ok"}')
        status, text = server.get("/metrics")
        assert status == 200
        for line in ("trilogue_messages_received_total 2.0", "trilogue_messages_unroutable_total 1.0", "trilogue_queue_ready 1.0",
                     "trilogue_sessions 1.0", "trilogue_partitions_stopped 0.0"):
            assert line in text.splitlines()
        assert 'trilogue_queue_published_total{queue="q",vhost="/"} 1.0' in server.get("/metrics/per-object")[1]
        assert server.get("/nothing")[0] == 404


def test_kill_under_load_loses_nothing_confirmed(tmp_path: pathlib.Path) -> None:
    confirmed = 0
    first = 1
    with Server(tmp_path) as server:
        for _ in range(3):
            client = server.client()
            assert client.ask("DECLARE q durable") == "OK"
            sender = threading.Thread(target=send_until_cut, args=(client, first, 2_000), daemon=True)
            sender.start()
            done = 0
            while done < 300:
                done = int(client.hear().removeprefix("OK "))
            server.kill()
            sender.join(PATIENCE_S)
            while line := last_words(client):
                done = int(line.removeprefix("OK "))
            confirmed = first + done - 1
            first = confirmed + 100_000         # what was sent and not confirmed may be there or not; the next numbers are others
            server.start()
            drained = drain(server)
            numbers = [number for number in drained if number > confirmed - done]
            assert numbers[:done] == list(range(confirmed - done + 1, confirmed + 1))
            assert numbers == sorted(numbers)


def send_until_cut(client: Client, first: int, count: int) -> None:
    try:
        for number in range(first, first + count, 20):
            client.say(*(f"PUB - q {number + k}" for k in range(20)))
    except OSError:
        pass


def last_words(client: Client) -> str:
    try:
        line = client.file.readline().decode()
    except OSError:
        return ""
    return line.rstrip("\n") if line.endswith("\n") else ""


def drain(server: Server) -> list[int]:
    """Everything that waits in the queue, acknowledged and gone."""
    client = server.client()
    assert client.ask("PUB - q -1") == "OK 1"
    assert client.ask("SUB q 1000000") == "OK"
    numbers = []
    acks = []
    while not numbers or numbers[-1] != -1:
        _, tag, _, body = client.hear().split(" ")
        numbers.append(int(body))
        acks.append(f"ACK {tag}")
    client.say(*acks)
    assert client.ask("DECLARE q durable") == "OK"      # the acknowledgements before it are on disk with it
    client.close()
    return numbers[:-1]


@pytest.fixture
def topic_server(tmp_path: pathlib.Path) -> Server:
    """A server that was killed, with something in a topic and in a queue."""
    with Server(tmp_path) as server:
        client = server.client()
        for line in ("TOPIC t", "TOPIC fine", "DECLARE q durable", "PUB - t one", "PUB - t two", "PUB - fine three", "PUB - q four"):
            assert client.ask(line).startswith("OK")
        assert server.stop() == 0
    return server


def flip(folder: pathlib.Path, position: int) -> None:
    log = next(folder.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)


def log_folders(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """Of topics, in the order they were made."""
    return sorted(path for path in (tmp_path / "data" / "logs").iterdir() if 65_536 <= int(path.name, 16) < 1 << 40)


def test_a_corrupt_topic_does_not_take_the_node_down(tmp_path: pathlib.Path, topic_server: Server) -> None:
    bad = log_folders(tmp_path)[0]
    flip(bad, 90)
    with topic_server as server:
        assert "partition refused" in server.log()
        status, text = server.get("/health/ready")
        assert status == 503
        assert str(int(bad.name, 16)) in json.loads(text)["reason"]
        client = server.client()
        assert "is stopped" in client.ask("PUB - t three")
        assert client.ask("READ fine 0") == "OK"
        assert client.hear() == "REC 0 three"
        assert client.ask("SUB q") == "OK"
        assert client.hear() == "MSG 1 0 four"
        assert server.stop() == 0


def test_corrupt_metadata_are_refused(tmp_path: pathlib.Path, topic_server: Server) -> None:
    flip(tmp_path / "data" / "logs" / f"{1:016x}", 90)
    said = refused(topic_server)
    assert f"{1:016x}" in said


def test_no_secret_is_logged(tmp_path: pathlib.Path) -> None:
    with Server(tmp_path, ['users=[{name="u", password="s3cret-word"}]']) as server:
        assert server.client(login=False).ask("LOGIN u s3cret-word").startswith("ERR access to vhost '/' refused")
        assert "refused" in server.client(login=False).ask("LOGIN u wr0ng-word")
        assert server.stop() == 0
        assert "s3cret-word" not in server.log() + server.out()
        assert "wr0ng-word" not in server.log()


def test_the_environment_is_enough(tmp_path: pathlib.Path) -> None:
    """Nothing needs a working directory, a terminal or a home."""
    server = Server(tmp_path)
    environ = server.environ()
    done = subprocess.Popen(server.command(), env={key: environ[key] for key in environ if key in ("PATH", "PYTHONPATH")}, cwd=os.sep,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout is not None
    while done.stdout.readline() != b"ready\n":
        assert done.poll() is None
    done.terminate()
    done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0
