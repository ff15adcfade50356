"""Starts the extender: `python -m scheduler_ext --kubeconfig FILE --port 9443`."""

import argparse
import asyncio
import logging
import ssl
import sys
from collections.abc import Callable

from aliquot import service
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.tls import CertificatePair, server_context
from scheduler_ext.collector import Collector
from scheduler_ext.election import WRITE_SECONDS, DeposedError, Election
from scheduler_ext.forward import Forwarder
from scheduler_ext.metrics import ReplicaMetrics
from scheduler_ext.office import Office, Worker
from scheduler_ext.options import candidate, parse_arguments
from scheduler_ext.parts import Parts
from scheduler_ext.server import Extender

AGENT = "aliquot-scheduler-ext"
HANDOVER_SECONDS = WRITE_SECONDS + 1
"""For calls under way when a replica ends or begins anew: others wait for it."""

_log = logging.getLogger(__name__)


async def run(options: argparse.Namespace) -> None:
    """Serve until a signal says stop; a replica that is deposed begins anew.

    Raises:
        AccessError: there is no way to the API server.
    """
    if not options.leader_elect:
        await run_alone(options)
        return
    while not await run_replica(options):
        _log.warning("this replica begins anew, with nothing in its ledger")


async def run_alone(options: argparse.Namespace) -> None:
    """Serve as the only extender."""
    tls = server_context(options.tls_cert, options.tls_key) if options.tls_cert else None
    async with Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT) as api:
        parts = Parts(api, options)
        ReplicaMetrics(parts.registry, leads=lambda: True, transitions=lambda: 0)
        workers = (Collector(parts.feeds), *parts.feeds, *parts.workers)
        await serve(parts.extender(), options, tls, *workers)


async def run_replica(options: argparse.Namespace) -> bool:
    """Serve as one of several; False when it has led and was deposed."""
    tls = server_context(options.tls_cert, options.tls_key, options.tls_ca)
    pair = CertificatePair(options.tls_ca, options.tls_cert, options.tls_key)
    own = Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT, timeout_seconds=WRITE_SECONDS)
    async with own:
        election = Election(own, candidate(options), lambda: not parts.missing())
        async with Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT, fence=election.fence) as api:
            parts = Parts(api, options)
            office = Office(election, parts.catch_up, parts.workers)
            counted = ReplicaMetrics(
                parts.registry, leads=lambda: not office.closed(), transitions=lambda: election.transitions
            )
            extender = parts.extender(Forwarder(election, office, pair, counted.forwarded))
            deposed = False
            try:
                await serve(
                    extender,
                    options,
                    tls,
                    Collector(parts.feeds),
                    *parts.feeds,
                    election,
                    office,
                    before_end=election.resign,
                    patience=HANDOVER_SECONDS,
                )
            except* DeposedError as group:
                _log.warning("this replica does not lead any more: %s", group.exceptions[0])
                deposed = True
        await election.release()
    return not deposed


async def serve(
    extender: Extender,
    options: argparse.Namespace,
    tls: ssl.SSLContext | None,
    *workers: Worker,
    before_end: Callable[[], None] = lambda: None,
    patience: float = service.PATIENCE_SECONDS,
) -> None:
    """Answer calls while the workers work, until SIGTERM or SIGINT; a worker that fails ends the process."""
    serving = service.serving(
        extender.app(), options.host, options.port, tls, patience=patience, desk=extender.desk()
    )
    async with serving as stop, asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker.run()) for worker in workers]
        await stop.wait()
        before_end()
        for task in tasks:
            task.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run the extender; returns the exit status."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return service.run(AGENT, options, run(options), (AccessError, OSError, ValueError))


if __name__ == "__main__":
    sys.exit(main())
