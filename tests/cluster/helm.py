"""The chart, by Helm: rendered, and as a release on any cluster."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.access import Cluster, is_served
from tests.cluster.programs import program

Json = dict[str, Any]

NAME: Final = "aliquot"
NAMESPACE: Final = "aliquot-system"
SERVED_S: Final = 60.0
REGISTRY: Final = "registry.example.com/gpu"
"""Where the chart is told that its images are; nothing is pulled from there."""
CHART: Final = Path(__file__).parents[2] / "deploy/charts/aliquot"


def helm(*words: str, which: str = "helm") -> str:
    """One command of Helm's, which finds nothing that another has left. What it prints.

    Args:
        words: its arguments.
        which: the program: the newest Helm, or `helm3`, the oldest that the chart is for.
    """
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, **{f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}}
        command = [str(program(which)), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, f"helm {words[0]}: {done.stderr}"
    return done.stdout


def rendered(
    values: Json | None = None, namespace: str = NAMESPACE, options: Sequence[str] = (), which: str = "helm"
) -> list[Json]:
    """The chart's objects as Helm would apply them."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"image": {"registry": REGISTRY}, **(values or {})}, file)
        file.flush()
        given = ["--namespace", namespace, "--values", file.name, *options]
        text = helm("template", NAME, str(CHART), *given, which=which)
    return [found for found in yaml.safe_load_all(text) if found]


class HelmRelease:
    """Aliquot's release on a cluster."""

    def __init__(self, cluster: Cluster, which: str = "helm") -> None:
        """It is made and changed by this program."""
        self.cluster = cluster
        self._which = which

    @property
    def kubectl(self) -> Kubectl:
        """The admin's client."""
        return self.cluster.kubectl

    def helm(self, verb: str, *arguments: str) -> str:
        """One command of Helm's, about the release. What it prints."""
        scopes = ["--namespace", NAMESPACE, "--kubeconfig", str(self.cluster.kubeconfig)]
        return helm(verb, *arguments, *scopes, which=self._which)

    def install(self, *flags: str) -> str:
        """`helm install`, with the namespace."""
        given = ["--set", f"image.registry={REGISTRY}", *flags]
        return self.helm("install", NAME, str(CHART), "--create-namespace", *given)

    def install_idle(self, **values: Any) -> None:
        """`helm install` with these values, and with such that no node runs any of it; its resources are served."""
        nowhere = {"nodeSelector": {"aliquot.dev/trial": "no-node"}}
        parts = dict.fromkeys(("agent", "webhook", "scheduler"), nowhere)
        idle = {**parts, "certificates": {"keeper": nowhere}, "crds": {"keep": False}, **values}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(idle, file)
            file.flush()
            self.install("--values", file.name)
        for crd in (one for one in self.objects() if one["kind"] == "CustomResourceDefinition"):
            wait_for(crd["metadata"]["name"], partial(is_served, self.kubectl, crd["spec"]), SERVED_S)

    def upgrade(self, *flags: str, chart: Path = CHART) -> str:
        """`helm upgrade`, with the values as they are."""
        return self.helm("upgrade", NAME, str(chart), "--reset-then-reuse-values", *flags)

    def objects(self) -> list[Json]:
        """What Helm has applied."""
        return [found for found in yaml.safe_load_all(self.helm("get", "manifest", NAME)) if found]

    def find(self, wanted: Json) -> Json | None:
        """An object as it is in the cluster now."""
        metadata = wanted["metadata"]
        return self.kubectl.find(resource_of(wanted), metadata["name"], metadata.get("namespace", ""))


def resource_of(obj: Json) -> str:
    """Plural and group of an object of the chart's."""
    plural = obj["kind"].lower()
    plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s"
    group = obj["apiVersion"].rpartition("/")[0]
    return f"{plural}.{group}" if group else plural
