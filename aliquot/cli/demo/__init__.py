"""`aliquot demo`: from pods' YAML to enforced slices, on simulated cards in a pocket cluster, every claim checked."""

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from aliquot.cli.demo.stack import SOURCE_ROOT, Stack
from aliquot.cli.demo.story import Story, StoryError
from sandbox.cluster.processes import ProcessError
from sandbox.gpus import SimCard, SimulationError

CARDS = (SimCard(context_mib=256), SimCard(context_mib=256))
EXAMPLES = SOURCE_ROOT / "examples" / "inference"


@click.command(short_help="The whole path on this machine: no GPU, no Kubernetes.")
@click.option("--keep", is_flag=True, help="Keep logs and state, and say where.")
def demo(*, keep: bool) -> None:
    """Show the whole path on this machine: no GPU, no Kubernetes; exit status 0 only if all of it is true."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 100
    root = Path(tempfile.mkdtemp(prefix="aliquot-"))
    try:
        with Stack(root, {"node-1": CARDS}) as stack:
            succeeded = Story(stack, console, EXAMPLES).tell()
    except (StoryError, ProcessError, SimulationError, TimeoutError) as error:
        console.print(f"[red]{error}[/red]")
        keep, succeeded = True, False
    if keep:
        console.print(f"Logs and state are in {root}")
    else:
        _remove(root)
    sys.exit(0 if succeeded else 1)


def _remove(root: Path) -> None:
    import shutil

    shutil.rmtree(root, ignore_errors=True)
