"""The sub-commands of `aliquot`: one file each, imported only when it is called.

NVML, tables and the sandbox take longer to import than most commands take to run.
"""

import importlib
import io
import signal
import sys
from importlib.util import find_spec

import click

COMMANDS = {
    "run": "aliquot.cli.run",
    "cards": "aliquot.cli.cards",
    "resize": "aliquot.cli.resize",
    "top": "aliquot.cli.top",
    "why": "aliquot.cli.why",
    "nodes": "aliquot.cli.nodes",
    "defragment": "aliquot.cli.defragment",
    "doctor": "aliquot.cli.doctor",
    "certs": "aliquot.cli.certs",
    "simulate": "aliquot.cli.replay",
    "demo": "aliquot.cli.demo",
}
"""Sub-command → its module, which holds a click command of the same name."""
CLEANS_UP = frozenset({"demo"})
"""Sub-commands that unwind when they are interrupted."""


class LazyGroup(click.Group):
    """Finds sub-commands in COMMANDS; one whose module is not installed is not offered."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """The names of the sub-commands there are, in the order of COMMANDS."""
        return [name for name, module in COMMANDS.items() if find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one sub-command; None when there is no such name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name in CLEANS_UP and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name]}.{cmd_name} is no click command")
        return command


@click.command(cls=LazyGroup)
@click.version_option(package_name="aliquot")
def aliquot() -> None:
    """Slices of NVIDIA cards, with or without Kubernetes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal whose encoding lacks a character of a command's name is shown an escape instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
