"""Backups of the pocket API server's store, as an administrator makes and restores those of etcd."""

import shutil
from pathlib import Path

from aliquot.sandbox.cluster.cluster import PocketCluster

FILES = ("journal.jsonl", "snapshot.json")


def back_up(cluster: PocketCluster, directory: Path) -> None:
    """Copy the store as it is now; nothing may be writing."""
    directory.mkdir()
    for name in FILES:
        if (store(cluster) / name).exists():
            shutil.copy(store(cluster) / name, directory)


def restore(cluster: PocketCluster, directory: Path) -> None:
    """Kill the API server and start it with the store as it was."""
    cluster.kill("apiserver")
    for name in FILES:
        (store(cluster) / name).unlink(missing_ok=True)
    for kept in directory.iterdir():
        shutil.copy(kept, store(cluster))
    cluster.restart("apiserver")


def store(cluster: PocketCluster) -> Path:
    """Where the API server keeps everything."""
    return cluster.kubeconfig.parent / "store"
