"""`aliquot simulate`: how well a policy would fill a cluster, by replaying a trace against the extender's own code."""

import json
import sys
from contextlib import ExitStack, nullcontext
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from aliquot.cli.options import Refusal
from aliquot.request.placement_policy import Policy, Preference, read_policy
from aliquot.scheduler_ext.replay.run import Heard, quiet
from aliquot.scheduler_ext.replay.study import Spread, Study, summed_up
from aliquot.scheduler_ext.replay.trace import TraceError, read_nodes, read_pods

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--nodes", type=FILE, required=True, help="CSV: sn, cpu_milli, memory_mib, gpu, model.")
@click.option(
    "--pods", type=FILE, required=True, help="CSV: cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec."
)
@click.option(
    "--policy",
    type=click.Choice([str(policy) for policy in Policy], case_sensitive=False),
    default=str(Policy.FRAG_AWARE),
    show_default=True,
    help="For nodes and cards.",
)
@click.option(
    "--card-policy", type=click.Choice([str(p) for p in Policy], case_sensitive=False), help="For cards."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs; seeds 1 to N."
)
@click.option(
    "--load",
    type=click.FloatRange(0.1, 10),
    default=1.3,
    show_default=True,
    help="How much is asked for, in parts of all cards.",
)
@click.option("--churn", is_flag=True, help="Pods leave again; LOAD is what is asked for on average.")
@click.option(
    "--sample",
    type=click.IntRange(1, 100),
    default=100,
    show_default=True,
    help="Percentage of nodes that kube-scheduler looks at.",
)
@click.option(
    "--via-http",
    is_flag=True,
    help="Ask an extender process over HTTP, in a pocket cluster; slow, same answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this PNG.")
def simulate(
    *,
    nodes: Path,
    pods: Path,
    policy: str,
    card_policy: str | None,
    seeds: int,
    load: float,
    churn: bool,
    sample: int,
    via_http: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Replay a trace of pods and say how much of the cards is allocated, in percent.

    The pods are shuffled, random ones are repeated until they ask for LOAD times the cards, and each is placed
    once. What is allocated is noted when 90, 95, 100, ... percent of the cards have been asked for. Pods without
    cards are placed too.
    """
    if via_http and churn:
        raise Refusal("--via-http replays arrivals; leave --churn out")
    if plot is not None:
        _need_matplotlib()
    try:
        nodes_read, pods_read = read_nodes(nodes), read_pods(pods)
    except (TraceError, OSError) as error:
        raise Refusal(str(error)) from error
    preference = Preference(read_policy(policy), read_policy(card_policy or policy))
    study = Study(nodes_read, pods_read, preference, load, sample, churn)
    found = summed_up(_run(study, seeds, via_http=via_http))
    if plot is not None:
        _draw(plot, f"{policy}, {seeds} seeds", found)
    if as_json:
        figures = {figure: {"mean": round(s.mean, 3), "sd": round(s.sd, 3)} for figure, s in found.items()}
        click.echo(json.dumps({"at": figures, "seeds": seeds, "policy": policy}))
    else:
        for figure, spread in found.items():
            click.echo(f"{figure:>9}  {spread.mean:6.2f} %  (sd {spread.sd:.2f})")


def _run(study: Study, seeds: int, *, via_http: bool) -> list[dict[str, float]]:
    """All seeds; shows on a terminal how far it is."""
    with Progress(console=Console(stderr=True)) if sys.stderr.isatty() else nullcontext() as shown:
        return [
            _one(study, seed, _bar(shown, f"seed {seed}"), via_http=via_http) for seed in range(1, seeds + 1)
        ]


def _one(study: Study, seed: int, heard: Heard, *, via_http: bool) -> dict[str, float]:
    if not via_http:
        return study.run(seed, heard)
    try:
        from aliquot.cli.commands.replay_http import OverHttp
    except ImportError as error:
        raise Refusal(f"the pocket cluster is not part of this installation ({error})") from error
    with ExitStack() as stack:
        return study.run(seed, heard, lambda nodes, said: stack.enter_context(OverHttp(nodes, said)))


def _bar(shown: Progress | None, name: str) -> Heard:
    if shown is None:
        return quiet
    task: TaskID = shown.add_task(name, total=1.0)
    return lambda done: shown.update(task, completed=done)


def _need_matplotlib() -> None:
    """Before the long work."""
    if find_spec("matplotlib") is None:
        raise Refusal("--plot needs matplotlib: pip install 'aliquot[plot]'")


def _draw(path: Path, title: str, found: dict[str, Spread]) -> None:
    """Draw bars of the figures into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), dpi=100)
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    axes.errorbar(list(found), [s.mean for s in found.values()], [s.sd for s in found.values()], marker="o")
    axes.set_title(title)
    axes.set_ylabel("allocated, % of all cards")
    axes.set_xlabel("asked for, % of all cards")
    axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
