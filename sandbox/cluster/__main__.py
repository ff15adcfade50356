"""`python -m aliquot.sandbox.cluster up [--dir D] [--nodes N] [--config C]`: a pocket cluster until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m aliquot.sandbox.cluster", description=__doc__)
    parser.add_argument("verb", choices=["up"])
    parser.add_argument("--dir", type=Path, help="state; kept (default: a temporary directory)")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--config", type=Path, help="a KubeSchedulerConfiguration whose extenders are called")
    return parser.parse_args()


def _up(arguments: argparse.Namespace, root: Path) -> None:
    document = yaml.safe_load(arguments.config.read_text()) if arguments.config else {}
    with PocketCluster(root) as cluster:
        cluster.start_apiserver()
        nodes = [cluster.start_kubelet(f"node-{number + 1}") for number in range(arguments.nodes)]
        cluster.start_scheduler(document.get("extenders") or ())
        lines = [f"export KUBECONFIG={cluster.kubeconfig}"]
        lines += [f"# {node.root.name}: --kubelet-dir {node.root} --cdi-dir {node.cdi}" for node in nodes]
        sys.stdout.write("\n".join([*lines, "# Ctrl-C ends it.", ""]))
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def main() -> None:
    """Run the command line."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if arguments.dir is not None:
        _up(arguments, arguments.dir)
        return
    with tempfile.TemporaryDirectory(prefix="pocket-") as directory:
        _up(arguments, Path(directory))


if __name__ == "__main__":
    main()
