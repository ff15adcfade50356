"""`aliquot demo`: from pods' YAML to enforced slices, on simulated cards in a pocket cluster, every claim checked."""

import signal
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from aliquot.cli.demo.scenario import Scenario, ScenarioError
from aliquot.cli.demo.stack import MANIFESTS, Stack
from aliquot.cli.options import Refusal
from aliquot.sandbox.cluster.cluster import PathTooLongError
from aliquot.sandbox.cluster.processes import ProcessError, free_port
from aliquot.sandbox.gpus import SimCard, SimulationError

CARDS = (SimCard(context_mib=256), SimCard(context_mib=256))
EXAMPLES = MANIFESTS / "examples"
INTERRUPTED = 128 + signal.SIGINT
EXTRA = {
    "cel": "common-expression-language",
    "jsonpatch": "jsonpatch",
    "cuda.bindings": "cuda-bindings",
    "cuda.core": "cuda-core",
}
"""Module that the cluster or the tenants import → its distribution, of the extra `demo`."""


@click.command(short_help="The whole path on this machine: no GPU, no Kubernetes.")
@click.option("--keep", is_flag=True, help="Keep logs and state, and say where.")
def demo(*, keep: bool) -> None:
    """Show the whole path on this machine: no GPU, no Kubernetes; exit status 0 only if all of it is true."""
    _need_extra()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 100
    root, status = Path(tempfile.mkdtemp(prefix="aliquot-")), 1
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Stack(root, {"node-1": CARDS}, port=partial(free_port, root / "ports")) as stack:
            status = 0 if Scenario(stack, console, EXAMPLES).tell() else 1
    except (ScenarioError, ProcessError, SimulationError, TimeoutError) as error:
        console.print(f"[red]{error}[/red]")
        keep = True
    except PathTooLongError as error:
        raise Refusal(f"{error}; set TMPDIR to a directory of a shorter path, such as /tmp") from error
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        if keep:
            console.print(f"Logs and state are in {root}")
        else:
            _remove(root)
    sys.exit(status)


def _need_extra() -> None:
    """Raises Refusal where a package of the extra is not installed."""
    missing = [package for module, package in EXTRA.items() if not _is_installed(module)]
    if missing:
        raise Refusal(f"aliquot demo needs {', '.join(missing)}: pip install 'aliquot[demo]'")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def _remove(root: Path) -> None:
    import shutil

    shutil.rmtree(root, ignore_errors=True)
