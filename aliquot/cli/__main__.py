"""The `aliquot` command: one file per sub-command, imported only when it is called.

NVML, tables and the sandbox take longer to import than most commands take to run.
"""

import importlib
from importlib.util import find_spec

import click

COMMANDS = {
    "run": "aliquot.cli.run",
    "cards": "aliquot.cli.cards",
    "resize": "aliquot.cli.resize",
    "top": "aliquot.cli.top",
    "why": "aliquot.cli.why",
    "defragment": "aliquot.cli.defragment",
    "doctor": "aliquot.cli.doctor",
    "certs": "aliquot.cli.certs",
    "simulate": "aliquot.cli.replay",
    "demo": "aliquot.cli.demo",
}
"""Sub-command → its module, which holds a click command of the same name."""


class LazyGroup(click.Group):
    """Finds sub-commands in COMMANDS; one whose module is not installed is not offered."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """The names of the sub-commands there are, in the order of COMMANDS."""
        return [name for name, module in COMMANDS.items() if find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one sub-command; None when there is no such name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name]}.{cmd_name} is no click command")
        return command


@click.command(cls=LazyGroup)
@click.version_option(package_name="aliquot")
def main() -> None:
    """Slices of NVIDIA cards, with or without Kubernetes."""


if __name__ == "__main__":
    main(prog_name="aliquot")
