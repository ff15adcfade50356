"""The extender's command line."""

import argparse
import socket
from pathlib import Path

from aliquot.api import resource_domain
from aliquot.request.placement_policy import DEFAULT, Policy, PolicyError, read_policy
from aliquot.scheduler_ext.controllers.incomplete_gangs import GRACE_SECONDS
from aliquot.scheduler_ext.controllers.ledger_cleanup import RESERVATION_SECONDS
from aliquot.scheduler_ext.gang.coscheduling import HOLD_SECONDS
from aliquot.scheduler_ext.gang.partial_reservations import PATIENCE_SECONDS
from aliquot.scheduler_ext.preemption.extender_preemption import PATIENCE_SECONDS as PREEMPTION_SECONDS
from aliquot.scheduler_ext.preemption.reclaim import EVICTIONS_PER_MINUTE
from aliquot.scheduler_ext.runtime.election import LEASE_SECONDS, WRITE_SECONDS, Candidate
from aliquot.server import authn, log

VOLCANO = "volcano"
BY_EXTENDER, BY_KUBE_SCHEDULER, BY_NOBODY = PREEMPTIONS = ("extender", "kube-scheduler", "none")
"""Who has pods evicted for those of higher priority."""
SHORTEST_LEASE = int(WRITE_SECONDS) + 3
"""In seconds: what a renewal may miss before the leader stops answering is what remains beside a write."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="aliquot-scheduler-ext", description="Places pods for kube-scheduler."
    )
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: %(default)s")
    parser.add_argument("--port", type=int, default=9443, help="default: %(default)s")
    parser.add_argument("--tls-cert", type=Path, help="certificate, reloaded when it changes; default: HTTP")
    parser.add_argument("--tls-key", type=Path, help="key of the certificate")
    _add_placing(parser)
    resource_domain.add_arguments(parser)
    parser.add_argument("--dialects", nargs="*", default=[], metavar="NAME", help="for example: hami")
    parser.add_argument(
        "--reservation-seconds",
        type=float,
        default=RESERVATION_SECONDS,
        help="how long a place waits for its bind; default: %(default)s",
    )
    _add_groups(parser)
    _add_evictions(parser)
    parser.add_argument(
        "--volcano",
        nargs="*",
        metavar="NAME",
        help="answer Volcano's extender plugin, and write the placements of pods of these schedulers; "
        f"without a name: {VOLCANO}",
    )
    parser.add_argument(
        "--card-metrics",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether /metrics tells of every card, in four series each; the node agents tell of their own",
    )
    _add_election(parser)
    authn.add_arguments(parser)
    log.add_arguments(parser)
    options = parser.parse_args(arguments)
    options.volcano = () if options.volcano is None else options.volcano or (VOLCANO,)
    complaint = _complaint(options)
    if complaint:
        parser.error(complaint)
    return options


def candidate(options: argparse.Namespace) -> Candidate:
    """How this replica stands for election."""
    return Candidate(
        options.lease_namespace,
        options.lease_name,
        options.identity,
        options.advertise_url.rstrip("/"),
        options.lease_seconds,
    )


def _add_placing(parser: argparse.ArgumentParser) -> None:
    for what in ("node", "card"):
        parser.add_argument(
            f"--{what}-policy",
            type=_policy,
            metavar="POLICY",
            help=f"FragAware, Binpack or Spread, where neither pod nor pool says which {what}s to prefer; "
            "default: %(default)s",
            default=getattr(DEFAULT, what),
        )
    parser.add_argument(
        "--place-all-pods",
        action="store_true",
        help="place pods without slices, too; for a scheduler that is told of no managedResources",
    )
    parser.add_argument(
        "--learn-at-once",
        action="store_true",
        help="learn what pods ask for while a call of filter waits, as `aliquot simulate` does; for replays",
    )


def _add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group-seconds",
        type=float,
        default=HOLD_SECONDS,
        help="how long the places of a group of pods wait for all of them, where the group does not say; 0: each pod "
        "goes alone; default: %(default)s",
    )
    parser.add_argument(
        "--group-saving-seconds",
        type=float,
        default=PATIENCE_SECONDS,
        help="a group, or a pod of several cards, that has found no room for so long saves up places, for as long; "
        "0: none does; default: %(default)s",
    )
    parser.add_argument(
        "--group-grace-seconds",
        type=float,
        default=GRACE_SECONDS,
        help="a group that has run with fewer members than it needs for so long is evicted for others that wait for "
        "its cards; 0: never; default: %(default)s",
    )


def _add_evictions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preemption",
        choices=PREEMPTIONS,
        default=BY_EXTENDER,
        help="who has pods evicted for one of higher priority: the extender, too, where kube-scheduler finds nobody to "
        "evict; kube-scheduler alone; or nobody, none; default: %(default)s",
    )
    parser.add_argument(
        "--preemption-seconds",
        type=float,
        default=PREEMPTION_SECONDS,
        help="how long a pod waits before the extender has others evicted for it; default: %(default)s",
    )
    parser.add_argument(
        "--min-run-seconds",
        type=float,
        default=0.0,
        help="how long a pod is left alone after its start, by preemption and reclaim; default: %(default)s",
    )
    parser.add_argument(
        "--reclaims-per-minute",
        type=int,
        default=EVICTIONS_PER_MINUTE,
        help="pods evicted at most for quotas that reclaim what they are guaranteed; 0: none; default: %(default)s",
    )


def _policy(word: str) -> Policy:
    try:
        return read_policy(word)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several replicas")
    group.add_argument(
        "--leader-elect", action="store_true", help="one of several replicas answers at a time"
    )
    group.add_argument("--advertise-url", metavar="URL", help="https://… at which the others reach this one")
    group.add_argument("--tls-ca", type=Path, help="CA of all replicas' certificates")
    group.add_argument(
        "--tls-server-name",
        metavar="NAME",
        help="the name in the others' certificates; default: the host of their --advertise-url",
    )
    group.add_argument("--lease-namespace", default="aliquot-system", help="default: %(default)s")
    group.add_argument("--lease-name", default="aliquot-scheduler-ext", help="default: %(default)s")
    group.add_argument(
        "--identity", default=socket.gethostname(), help="in the Lease; default: the host's name"
    )
    group.add_argument(
        "--lease-seconds",
        type=int,
        default=LEASE_SECONDS,
        help="how long a leader that is gone keeps the others waiting; default: %(default)s",
    )
    group.add_argument(
        "--hold-seconds",
        type=float,
        default=0.0,
        help="how long a call of kube-scheduler's is held while no replica answers it, less than its httpTimeout; for "
        "a kube-scheduler that has nothing else to do; default: %(default)s",
    )
    group.add_argument(
        "--kube-scheduler-health",
        metavar="URL",
        help="https://…/healthz of the kube-scheduler in the same pod, whose kubelet asks for it here",
    )


def _complaint(options: argparse.Namespace) -> str:
    """What does not fit together."""
    if bool(options.tls_cert) != bool(options.tls_key):
        return "--tls-cert and --tls-key belong together"
    return authn.complaint(options) or (_election_complaint(options) if options.leader_elect else "")


def _election_complaint(options: argparse.Namespace) -> str:
    if not (options.advertise_url or "").startswith("https://"):
        return "--leader-elect needs --advertise-url https://…, where the other replicas reach this one"
    if not (options.tls_cert and options.tls_ca):
        return "--leader-elect needs --tls-cert, --tls-key and --tls-ca: replicas call each other over TLS"
    if options.lease_seconds < SHORTEST_LEASE:
        return f"--lease-seconds: at least {SHORTEST_LEASE}"
    return ""
