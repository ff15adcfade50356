"""Who walks through a document: a directory like a checkout, programs on the path, and an admin's kubeconfig."""

import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.cluster.installation import ROOT, VALUES, Installation
from tests.cluster.node import NAME
from tests.cluster.programs import program

NAMES = {"gpu-1": NAME}
"""The node of the documents."""
SHOWN = ("deploy", "examples", "README.md")


def make_checkout(directory: Path, **values: object) -> None:
    """Fill a directory: what of the tree the documents name, and the reader's own `values.yaml`.

    It has what says where this cluster's hardware is, which is simulated; `values` come on top.
    """
    for name in SHOWN:
        (directory / name).symlink_to(ROOT / name)
    own = {key: value for key, value in VALUES.items() if key != "dialects"}
    (directory / "values.yaml").write_text(yaml.safe_dump({**own, **values}))


def environment(installed: Installation, directory: Path) -> Mapping[str, str]:
    """Variables of the reader's shell; the programs are put below the directory."""
    programs, home = directory / ".venv/bin", directory / ".home"
    for made in (programs, home):
        made.mkdir(parents=True)
    for name in ("kubectl", "helm"):
        (programs / name).symlink_to(program(name))
    for name, module in (("aliquot", "-m aliquot.cli "), ("python", "")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {module}"$@"\n')
        script.chmod(0o755)
    return {
        "HOME": str(home),
        "KUBECONFIG": str(installed.plane.kubeconfig),
        "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
    }
