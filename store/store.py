"""A node's store, put together: the data directory, the journal with its threads, the checkpoints."""

from __future__ import annotations

from trilogue.store.checkpoints import LmdbCheckpoints
from trilogue.store.datadir import DataDir
from trilogue.store.disk import OsDisk
from trilogue.store.journal import DiskJournal
from trilogue.store.settings import StoreSettings
from trilogue.store.worker import Post, ThreadWorker


class Store:
    """`close` after the last round has been answered: it leaves the mark of a clean shutdown."""

    def __init__(self, path: str, settings: StoreSettings, post: Post) -> None:
        disk = OsDisk()
        self.datadir: DataDir = DataDir(disk, path)
        self.epoch: int = self.datadir.epoch
        self.checkpoints: LmdbCheckpoints = LmdbCheckpoints(
            self.datadir.checkpoints_path, settings.checkpoint_map_bytes, post, ThreadWorker("trilogue-checkpoint"))
        self.journal: DiskJournal = DiskJournal(
            disk, self.datadir, settings, post, ThreadWorker("trilogue-sync"), ThreadWorker("trilogue-read"), ThreadWorker("trilogue-sweep"))

    def close(self) -> None:
        self.checkpoints.close()
        self.journal.close()
