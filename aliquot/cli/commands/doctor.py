"""`aliquot doctor`: what is wrong with a cluster, or with this node, and what to do about it."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from aliquot.api.names import DOMAIN, ResourceNames
from aliquot.api.resource_domain import ENV, FLAG
from aliquot.cli.options import Domain
from aliquot.doctor.all_checks import CLUSTER_CHECKS
from aliquot.doctor.check import run
from aliquot.doctor.facts.cluster_reader import MOST_PODS, Reader
from aliquot.doctor.facts.helm_release import helm_command
from aliquot.doctor.facts.installation import installed_in
from aliquot.doctor.finding import Finding, Result, with_helm_command
from aliquot.doctor.report import lines
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api

F = TypeVar("F", bound=Callable[..., Any])

NARROWEST = 80


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    findings: Sequence[Finding]


def _place(flag: str, what: str, name: str = "") -> Callable[[F], F]:
    """An option for where something is on the node."""
    usual = "Default: as on a node, and in the agent's pod as the chart mounts it."
    return click.option(f"--{flag}", name or flag, type=click.Path(path_type=Path), help=f"{what} {usual}")


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
)
@click.option(
    "--namespace",
    help="Where Aliquot is installed. Default: where the webhooks' configuration says, or aliquot-system.",
)
@click.option(
    "--most-pods",
    type=click.IntRange(min=1),
    default=MOST_PODS,
    help="Look at no more than about so many pods.",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--node", is_flag=True, help="Check this machine, or the host of the agent's pod that this runs in."
)
@click.option("--run", "for_run", is_flag=True, help="Check this machine for `aliquot run`, and try a slice.")
@click.option("--simulate", is_flag=True, help="With --run: check the simulated machine of two 16Gi cards.")
@click.option(
    FLAG,
    "names",
    type=Domain(),
    envvar=ENV,
    default=DOMAIN,
    metavar="DOMAIN",
    help="With --node: the agent's flag of this name.",
    show_default=True,
)
@_place("proc", "The host's /proc.")
@_place("root", "The host's files.")
@_place("kubelet-dir", "The kubelet's directory.", "kubelet")
@_place("run-dir", "The node agent's --run-dir.", "run")
@_place("cdi-dir", "Its --cdi-dir.", "cdi")
@_place("dev-root", "Where the device nodes are.", "dev")
@_place("driver-root", "Where the driver is.", "driver")
def doctor(
    *,
    kubeconfig: Path | None,
    namespace: str | None,
    most_pods: int,
    as_json: bool,
    node: bool,
    for_run: bool,
    simulate: bool,
    names: ResourceNames,
    **places: Path | None,
) -> None:
    """Check a cluster, (--node) a node, or (--run) a machine for `aliquot run`, and say what is wrong and what to do.

    Nothing is changed; --run tries a slice for a moment. What your rights do not let it see is shown as not checked.
    The exit status is 1 where a check fails. Options with a path are for --node.
    """
    given = {name: path for name, path in places.items() if path is not None}
    if given and not node:
        raise click.UsageError(f"--{next(iter(given))} and the like go with --node")
    if node and for_run:
        raise click.UsageError("--node and --run are two questions: give one of them")
    if simulate and not for_run:
        raise click.UsageError("--simulate goes with --run")
    if for_run:
        findings = _run(simulate=simulate)
    elif node:
        findings = _node(given, names)
    else:
        findings = asyncio.run(_cluster(kubeconfig, namespace, most_pods))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(Report(findings))).decode())
    else:
        click.echo("\n".join(lines(findings, max(NARROWEST, shutil.get_terminal_size().columns))))
    if any(finding.result is Result.FAILURE for finding in findings):
        raise SystemExit(1)


def _node(given: Mapping[str, Path], names: ResourceNames) -> tuple[Finding, ...]:
    """What is found on this node; NVML is loaded for this alone."""
    from aliquot.cli.commands.doctor_node import examine, usual_places

    return examine(replace(usual_places(), **given), names)


def _run(*, simulate: bool) -> tuple[Finding, ...]:
    """What `aliquot run` would meet on this machine; it is loaded for this alone."""
    from aliquot.cli.commands.doctor_run import examine

    return examine(simulate=simulate)


async def _cluster(kubeconfig: Path | None, namespace: str | None, most_pods: int) -> tuple[Finding, ...]:
    """What is found in a cluster. Raises UsageError where no access to one is given."""
    try:
        api = Api.from_kubeconfig(kubeconfig)
    except AccessError as error:
        raise click.UsageError(
            f"{error}; give --kubeconfig, or --run to check this machine for `aliquot run`, or --node to check it "
            "as a node of a cluster"
        ) from error
    async with api:
        cluster = await Reader(api, namespace or await installed_in(api), most_pods).read()
        return with_helm_command(run(CLUSTER_CHECKS, cluster), helm_command(cluster))
