"""One bit flips somewhere on disk: whoever reads it notices. The start refuses, or a partition stops, or the index or checkpoint concerned is
done without; what is served is what was published, in order, and never anything else.

The last group of each log after a crash is left out: nothing shows that it was ever synced, so damage there cannot be told from a write that
was cut short.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
from collections.abc import Iterator

import lmdb
import pytest

from tests.core.world import World, body_of
from trilogue.core.batch import read_header
from trilogue.core.errors import OperatingError
from trilogue.core.message import Run
from trilogue.core.topic import TopicPartition, TopicReader
from trilogue.store.datadir import DataDir
from trilogue.store.disk import OsDisk
from trilogue.store.verify import verify

QUEUES = ("a", "b", "c")
SEGMENT_BYTES = 24 << 10
POINTS = min(500, int(os.environ.get("POINTS", "120")))
# For each of the two ways in which the node was left.
PLACES = {"log": POINTS * 35 // 100, "idx": POINTS * 7 // 100, "checkpoint": POINTS * 8 // 100}


class Node(World):
    """One that lets go of its files even if it does not start."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path, SEGMENT_BYTES)

    def start(self) -> None:
        try:
            super().start()
        except BaseException:
            self.shut()
            raise

    def shut(self) -> None:
        """As a kill would."""
        disk = OsDisk()
        if hasattr(self, "store"):
            self.store.env.close()
        if hasattr(self, "journal"):
            self.journal.files.close()
            disk.close(self.journal.root_fd)
        if hasattr(self, "datadir"):
            disk.close(self.datadir.lock_fd)


class Reader(TopicReader):
    def __init__(self) -> None:
        super().__init__(0)
        self.got: list[bytes] = []
        self.error: Exception | None = None

    def room(self) -> int:
        return 1 << 30

    def deliver(self, partition: TopicPartition, run: Run, start: int, count: int) -> None:
        self.got.extend(body_of(span) for span in run.spans[start:start + count])

    def ended(self, error: Exception | None) -> None:
        self.error = error


class Left:
    """A data directory as it was left, and everything that it still owes: the bodies in each queue and in the topic `t`."""

    def __init__(self, path: pathlib.Path, clean: bool) -> None:
        self.path = path
        self.clean = clean
        self.owed: dict[str, list[bytes]] = {name: [] for name in (*QUEUES, "t")}
        self.fill(random.Random(clean))

    def fill(self, rng: random.Random) -> None:
        node = Node(self.path)
        for name in QUEUES:
            node.declare(name)
        node.declare("t", queue_type="stream")
        for step in range(1_400):
            name = ("a", "b", "a", "c", "t")[step % 5]
            bodies = [b"%s %d " % (name.encode(), step * 10 + k) + rng.randbytes(rng.choice([20, 50, 200])) for k in range(rng.randrange(1, 4))]
            node.publish(name, *bodies)
            self.owed[name] += bodies
            if step % 30 == 29:
                self.consume(node, rng)
            if step % 100 == 99:
                node.tick()
        if self.clean:
            node.tick()
            node.tick()
            node.stop()
        else:
            node.shut()

    def consume(self, node: Node, rng: random.Random) -> None:
        """Some are acknowledged, not all and not in order."""
        name = rng.choice(QUEUES[:2])
        taker = node.consume(name, prefetch=30)
        kept = list(self.owed[name])
        for tag in rng.sample(range(1, len(taker.got) + 1), len(taker.got) * 2 // 3):
            kept.remove(taker.got[tag - 1])
            taker.prefetch -= 1
            taker.ack(tag)
        taker.leave()
        node.loop.advance(200)
        self.owed[name] = kept


def flips(left: Left, rng: random.Random) -> Iterator[tuple[str, pathlib.Path, int]]:
    """(kind, file, bit): places of each kind, spread over all bytes that count."""
    ranges: dict[str, list[tuple[pathlib.Path, int, int]]] = {"log": [], "idx": [], "checkpoint": []}
    for folder in sorted((left.path / "logs").iterdir()):
        if int(folder.name, 16) < 1 << 40:              # not the transient shard, which no start reads
            for file in sorted(folder.glob("*.idx")):
                ranges["idx"].append((file, 0, file.stat().st_size))
            ranges["log"] += proven_ranges(sorted(folder.glob("*.log")), left.clean)
    ranges["checkpoint"] = value_ranges(left.path / "checkpoints")
    for kind, count in PLACES.items():
        assert ranges[kind], kind
        for file, lo, hi in rng.choices(ranges[kind], [hi - lo for _, lo, hi in ranges[kind]], k=count):
            yield kind, file.relative_to(left.path), rng.randrange(lo * 8, hi * 8)


def proven_ranges(files: list[pathlib.Path], clean: bool) -> list[tuple[pathlib.Path, int, int]]:
    """The bytes that are known to have been synced: after a crash, those of batches below the highest `synced_to`."""
    batches = []
    for file in files:
        data = file.read_bytes()
        at = 0
        while at < len(data):
            header = read_header(data, at)
            batches.append((file, at, at + header.size, header))
            at += header.size
    known = max((header.synced_to for *_, header in batches), default=0)
    return [(file, lo, hi) for file, lo, hi, header in batches if clean or header.last < known]


def value_ranges(folder: pathlib.Path) -> list[tuple[pathlib.Path, int, int]]:
    """Where the values lie in LMDB's file: those have checksums; its own pages have none."""
    raw = (folder / "data.mdb").read_bytes()
    found = []
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as transaction:
        for _, value in transaction.cursor():
            at = raw.find(value)
            assert at >= 0
            found.append((folder / "data.mdb", at, at + len(value)))
    return found


def damage(left: Left, copy: pathlib.Path, name: pathlib.Path, bit: int) -> None:
    """A fresh copy with one bit flipped."""
    shutil.rmtree(copy)
    shutil.copytree(left.path, copy)
    with (copy / name).open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def serve(path: pathlib.Path, owed: dict[str, list[bytes]]) -> str:
    """Start on this directory and ask for everything; how the damage was noticed, if it was."""
    try:
        node = Node(path)
    except OperatingError as error:
        return str(error)
    try:
        broker = node.broker
        reader = Reader()
        takers = {name: node.consume(name) for name in QUEUES}
        broker.read_topic(node.session, "t", 0, reader)
        node.loop.run()
        noticed = "; ".join(partition.stopped for partition in broker.partitions.values() if partition.stopped) or str(reader.error or "")
        for name, got in [("t", reader.got), *((name, taker.got) for name, taker in takers.items())]:
            assert got == owed[name][:len(got)], f"{name} served something that was never published there, or in another order"
            assert got == owed[name] or noticed, f"{name} lost {len(owed[name]) - len(got)} messages, and nobody noticed"
        return noticed
    except OperatingError as error:         # a partition that stopped answers like this
        return str(error)
    finally:
        node.shut()


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_a_flipped_bit_is_never_served(tmp_path: pathlib.Path, clean: bool) -> None:
    left = Left(tmp_path / "left", clean)
    copy = tmp_path / "copy"
    shutil.copytree(left.path, copy)
    assert serve(copy, left.owed) == ""
    assert len(list(left.path.glob("logs/*/*.log"))) > 12, "several segments"
    noticed = 0
    for kind, file, bit in flips(left, random.Random(1)):
        where = f"{file}, byte {bit // 8}, bit {bit % 8}"
        damage(left, copy, file, bit)
        try:
            seen = bool(serve(copy, left.owed))
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        noticed += seen
        if kind == "log" and not seen:
            damage(left, copy, file, bit)
            assert any(report.problems or report.notes for report in verify(OsDisk(), str(copy))), f"{where} was not found by a verification"
    # The rest lies where nobody looks any more: acknowledgements before the checkpoint, index entries that were rebuilt.
    assert noticed > PLACES["log"] // 2


@pytest.mark.parametrize("name", ["format", "epoch"])
def test_a_flipped_bit_in_the_directory_s_own_files_is_noticed(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "data"
    for expected in range(1, 10):
        assert opened_epoch(path) == expected
    whole = {file: (path / file).read_bytes() for file in ("format", "epoch")}
    refused = 0
    for bit in range(len(whole[name]) * 8):
        data = bytearray(whole[name])
        data[bit // 8] ^= 1 << bit % 8
        (path / name).write_bytes(data)
        epoch = opened_epoch(path)
        assert epoch in (0, 10), bit
        refused += not epoch
        for file, content in whole.items():
            (path / file).write_bytes(content)
    assert refused > len(whole[name]) * 8 - 8               # all but some of those that make another kind of white space of the last byte


def opened_epoch(path: pathlib.Path) -> int:
    """0: refused."""
    try:
        datadir = DataDir(OsDisk(), str(path))
    except OperatingError:
        return 0
    datadir.close({})
    return datadir.epoch
