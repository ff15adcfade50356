"""The sub-commands of `aliquot`: one file each, imported only when it is called.

NVML, tables and the sandbox take longer to import than most commands take to run.
"""

import importlib
import io
import sys
from importlib.util import find_spec

import click

COMMANDS = {
    "run": ("aliquot.cli.commands.run", "Run a command confined to a slice of a card."),
    "cards": ("aliquot.cli.commands.cards", "List cards and the slices of them that runs hold."),
    "resize": ("aliquot.cli.commands.resize", "Raise or lower the limits of a run that goes on."),
    "top": ("aliquot.cli.commands.top", "Show who has how much of this machine's cards."),
    "why": ("aliquot.cli.commands.why", "Say why a pod waits, node by node, and what would help."),
    "nodes": ("aliquot.cli.commands.nodes", "List the cluster's nodes with cards and what is free of them."),
    "defragment": (
        "aliquot.cli.commands.defragment",
        "Say which pods to move where, so that a request fits.",
    ),
    "doctor": ("aliquot.cli.commands.doctor", "Check a cluster, a node or a machine; name what is wrong."),
    "certs": ("aliquot.cli.commands.certs", "Make certificates for the services, or keep them in a cluster."),
    "simulate": (
        "aliquot.cli.commands.replay",
        "Replay a trace of pods and say how much of the cards is used.",
    ),
    "demo": ("aliquot.cli.demo", "Show the whole path on this machine: no GPU, no Kubernetes."),
}
"""Sub-command → its module, which holds a click command of the same name, and what it does."""


class LazyGroup(click.Group):
    """Finds sub-commands in COMMANDS; one whose module is not installed is not offered."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """The names of the sub-commands there are, in the order of COMMANDS."""
        return [name for name, (module, _) in COMMANDS.items() if find_spec(module)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Says what there is without importing it, which takes a second and a half."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one sub-command; None when there is no such name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{cmd_name} is no click command")
        return command


@click.command(cls=LazyGroup)
@click.version_option(package_name="aliquot")
def aliquot() -> None:
    """Slices of NVIDIA cards, with or without Kubernetes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal whose encoding lacks a character of a command's name is shown an escape instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
