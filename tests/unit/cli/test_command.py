"""The `aliquot` command before a sub-command runs."""

import subprocess
import sys

from aliquot.cli.command_group import COMMANDS, LazyGroup, aliquot

HELP = """
import sys
from aliquot.cli.command_group import COMMANDS, aliquot
aliquot(["--help"], prog_name="aliquot", standalone_mode=False)
print(sys.modules.keys() & {module for module, _ in COMMANDS.values()})
"""


def test_its_help_names_each_command_in_a_line_and_imports_none():
    """They take a second and a half to import; no sentence is cut short."""
    told = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True).stdout
    *lines, imported = told.splitlines()
    for name, (_, sentence) in COMMANDS.items():
        assert f"  {name:<10}  {sentence}" in lines
    assert imported == "set()"


def test_each_command_is_there():
    """Under the name that the help tells."""
    assert isinstance(aliquot, LazyGroup)
    for name in COMMANDS:
        command = aliquot.get_command(aliquot.make_context("aliquot", [], resilient_parsing=True), name)
        assert command is not None
        assert command.name == name
