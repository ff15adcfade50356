"""Definitions of other projects' custom resources, as their releases have them."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.tools.debian import NotAvailableError

Json = dict[str, Any]

MODULE: Final = Path(__file__).parent / "resources"


@dataclass(frozen=True)
class Project:
    """A Go module, the directory of it that the definitions are in, and the resources that the chart makes."""

    module: str
    directory: str
    resources: tuple[str, ...]


CERT_MANAGER: Final = Project(
    "github.com/cert-manager/cert-manager", "deploy/crds", ("certificates", "issuers")
)
PROMETHEUS_OPERATOR: Final = Project(
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd",
    ("servicemonitors", "prometheusrules"),
)


def definitions(project: Project) -> list[Json]:
    """The CustomResourceDefinitions of what the chart makes of a project.

    Raises:
        NotAvailableError: there is no Go here, or it cannot fetch the module.
    """
    go = shutil.which("go")
    if not go:
        raise NotAvailableError(f"{project.module}: no Go to fetch it with")
    command = [go, "mod", "download", "-json", project.module]
    done = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailableError(f"{project.module}: {done.stdout} {done.stderr}")
    directory = Path(json.loads(done.stdout)["Dir"], project.directory)
    files = [path for name in project.resources for path in directory.glob(f"*_{name}.yaml")]
    assert len(files) == len(project.resources), f"{project.module} has {files} of {project.resources}"
    return [yaml.safe_load(path.read_text()) for path in files]
