"""Starts the extender: `python -m aliquot.scheduler_ext --kubeconfig FILE --port 9443`."""

import argparse
import asyncio
import logging
import ssl
import sys
from collections.abc import Callable

from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.kube.tracker import RestoredError
from aliquot.scheduler_ext.app import App
from aliquot.scheduler_ext.http.forward import Forwarder
from aliquot.scheduler_ext.http.metrics import ReplicaMetrics
from aliquot.scheduler_ext.http.server import Extender
from aliquot.scheduler_ext.options import candidate, parse_arguments
from aliquot.scheduler_ext.runtime.election import WRITE_SECONDS, DeposedError, Election
from aliquot.scheduler_ext.runtime.gc_tuning import GcTuning
from aliquot.scheduler_ext.runtime.leader import Leadership, Worker
from aliquot.scheduler_ext.runtime.loop_watchdog import LoopWatchdog
from aliquot.server import service
from aliquot.server.authn import guard_of
from aliquot.server.tls import CertificatePair, server_context

AGENT = "aliquot-scheduler-ext"
HANDOVER_SECONDS = WRITE_SECONDS + 1
"""For calls under way when a replica ends or begins anew: others wait for it."""

_log = logging.getLogger(__name__)


async def run(options: argparse.Namespace) -> None:
    """Serve until a signal says stop; who is deposed, or finds the API server restored from a backup, begins anew.

    Raises:
        AccessError: there is no way to the API server.
    """
    serve_once = run_replica if options.leader_elect else run_alone
    while not await serve_once(options):
        _log.warning("this replica begins anew, with nothing in its ledger")


async def run_alone(options: argparse.Namespace) -> bool:
    """Serve as the only extender; False when what it knows is true no more."""
    tls = server_context(options.tls_cert, options.tls_key, options.client_ca) if options.tls_cert else None
    async with Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT) as api:
        app = App(api, options)
        ReplicaMetrics(app.registry, leads=lambda: True, transitions=lambda: 0)
        workers: tuple[Worker, ...] = (GcTuning(app.feeds), *app.feeds, *app.workers)
        return await serve(app.extender(guard=guard_of(options, api)), options, tls, *workers)


async def run_replica(options: argparse.Namespace) -> bool:
    """Serve as one of several; False when it was deposed, or what it knows is true no more."""
    tls = server_context(options.tls_cert, options.tls_key, options.client_ca or options.tls_ca)
    pair = CertificatePair(options.tls_ca, options.tls_cert, options.tls_key)
    own = Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT, timeout_seconds=WRITE_SECONDS)
    async with own:
        election = Election(own, candidate(options), lambda: not app.missing())
        async with Api.from_kubeconfig(options.kubeconfig, user_agent=AGENT, fence=election.fence) as api:
            app = App(api, options)
            leadership = Leadership(election, app.catch_up, app.workers)
            counted = ReplicaMetrics(
                app.registry,
                leads=lambda: not leadership.closed(),
                transitions=lambda: election.transitions,
            )
            forwarder = Forwarder(
                election,
                leadership,
                pair,
                counted.forwarded,
                options.tls_server_name,
                hold_seconds=options.hold_seconds,
            )
            # Reviews are requests with a body, and a fence lets those of the leader pass alone.
            extender = app.extender(forwarder, guard_of(options, own))
            told_to_stop = await serve(
                extender,
                options,
                tls,
                GcTuning(app.feeds),
                *app.feeds,
                election,
                leadership,
                before_end=election.resign,
                patience=HANDOVER_SECONDS,
            )
        election.resign()
        await election.release()
    return told_to_stop


async def serve(
    extender: Extender,
    options: argparse.Namespace,
    tls: ssl.SSLContext | None,
    *workers: Worker,
    before_end: Callable[[], None] = lambda: None,
    patience: float = service.PATIENCE_SECONDS,
) -> bool:
    """Answer calls while the workers work, until SIGTERM or SIGINT; a worker that fails or hangs ends the process.

    False where one has ended because this replica does not lead any more, or the API server has gone back in time.
    """
    serving = service.serving(
        extender.app(), options.host, options.port, tls, patience=patience, desk=extender.desk()
    )
    outlived = False
    try:
        async with serving as stop, asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.run()) for worker in (LoopWatchdog(), *workers)]
            await stop.wait()
            before_end()
            for task in tasks:
                task.cancel()
    except* (DeposedError, RestoredError) as errors:
        _log.warning("what this replica knows is of no use any more: %s", _first(errors))
        outlived = True
    return not outlived


def _first(error: BaseException) -> BaseException:
    """What a task ended with, of however many groups in each other."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def main(arguments: list[str] | None = None) -> int:
    """Run the extender; returns the exit status."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return service.run(AGENT, options, run(options), (AccessError, OSError, ValueError))


if __name__ == "__main__":
    sys.exit(main())
