"""`python -m aliquot.sandbox.cluster.kubelet`: run one node until SIGTERM. Its containers live on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from pathlib import Path

from aliquot.sandbox.cluster.client import Client, Credentials
from aliquot.sandbox.cluster.kubelet.containers import Pace
from aliquot.sandbox.cluster.kubelet.kubelet import Kubelet, Settings
from aliquot.sandbox.cluster.kubelet.node import NodeSettings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aliquot.sandbox.cluster.kubelet", description=__doc__)
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--dir", type=Path, required=True, help="what this node keeps")
    parser.add_argument("--dev-root", type=Path, default=Path("/dev"), help="stands for the host's /dev")
    parser.add_argument("--cdi-dir", type=Path, action="append", help="default: DIR/cdi; may be repeated")
    parser.add_argument("--device-plugins-dir", type=Path, help="default: DIR/device-plugins")
    parser.add_argument("--pod-resources-socket", type=Path, help="default: DIR/pod-resources/kubelet.sock")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="of the Node")
    parser.add_argument("--cpu", type=int, default=16)
    parser.add_argument("--memory", default="64Gi")
    pace = Pace()
    parser.add_argument("--first-retry", type=float, default=pace.first_retry, metavar="SECONDS")
    parser.add_argument("--retry-period", type=float, default=pace.retry, metavar="SECONDS")
    parser.add_argument("--restart-backoff", type=float, default=pace.backoff, metavar="SECONDS")
    parser.add_argument("--forced-grace", type=float, default=pace.forced_grace, metavar="SECONDS")
    patience = Settings.plugin_patience
    parser.add_argument("--plugin-patience", type=float, default=patience, metavar="SECONDS")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> Settings:
    root: Path = arguments.dir.absolute()
    labels = dict(pair.split("=", 1) for pair in arguments.label)
    node = NodeSettings(
        arguments.node, root / "pods", labels=labels, cpu=arguments.cpu, memory=arguments.memory
    )
    return Settings(
        node=node,
        device_plugins=(arguments.device_plugins_dir or root / "device-plugins").absolute(),
        pod_resources=(arguments.pod_resources_socket or root / "pod-resources" / "kubelet.sock").absolute(),
        cdi=arguments.cdi_dir or [root / "cdi"],
        device_root=arguments.dev_root,
        pace=Pace(
            arguments.first_retry, arguments.retry_period, arguments.restart_backoff, arguments.forced_grace
        ),
        plugin_patience=arguments.plugin_patience,
    )


async def _run(arguments: argparse.Namespace) -> None:
    client = Client(Credentials.of_kubeconfig(arguments.kubeconfig))
    task = asyncio.create_task(Kubelet(client, _settings(arguments)).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await client.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(_run(_arguments()))
