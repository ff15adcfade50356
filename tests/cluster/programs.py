"""The programs of a Kubernetes cluster, built once from their Go sources into the cache.

    python -m tests.cluster.programs [NAME ...]     builds them (all of them), and prints their paths

Sources and versions are those of go.mod beside this file, and of helm3/go.mod. A directory of binaries in
$KUBEBUILDER_ASSETS is used instead for the programs that it has.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.cache import cache_dir
from tests.tools.debian import NotAvailableError

MODULE = Path(__file__).parent

_PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
    "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
    "helm": "helm.sh/helm/v4/cmd/helm",
}
_OLDEST_HELM = {"helm3": "helm.sh/helm/v3/cmd/helm"}
"""The oldest that the chart is for; the one above is the newest."""
_ENVIRON = {"CGO_ENABLED": "0"}
"""Programs that need no C library are the same everywhere, and run in an image that has nothing else."""


@dataclass(frozen=True)
class _Source:
    """A Go module of ours, and the programs that are built from what it requires."""

    module: Path
    packages: Mapping[str, str]
    linked: Mapping[str, str]
    """Variables of theirs that releases have set, and their values."""

    def flags(self) -> list[str]:
        """Flags of every build."""
        values = " ".join(f"-X {name}={value}" for name, value in self.linked.items())
        return ["-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", f"-s -w {values}"]

    def key(self, go: str) -> str:
        """A name for everything that the programs depend on."""
        asked = [go, "env", "GOVERSION"]
        version = subprocess.run(asked, cwd=self.module, capture_output=True, text=True, check=True)
        parts = [
            version.stdout,
            (self.module / "go.mod").read_text(),
            (self.module / "go.sum").read_text(),
            self.packages,
            _ENVIRON,
            self.flags(),
        ]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def program(name: str) -> Path:
    """Returns the path of a program; the first call on a machine builds it, which may take minutes.

    Raises:
        NotAvailableError: there is no Go here, or it cannot build the program.
    """
    given = _given(name)
    if given:
        return given
    go = shutil.which("go")
    if not go:
        message = f"{name}: no Go to build it with, and no directory in KUBEBUILDER_ASSETS that has it"
        raise NotAvailableError(message)
    source = _source(name)
    directory = cache_dir("programs") / source.key(go)
    directory.mkdir(exist_ok=True)
    # One lock for all: programs share most of their packages, and two builds at once would compile them twice.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / name).exists():
            _build(go, name, source, directory)
    return directory / name


def program_or_skip(name: str) -> Path:
    """The same for a test, which is skipped loudly where the program cannot be had."""
    try:
        return program(name)
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")


def kubernetes_version() -> str:
    """The version of Kubernetes that go.mod requires, as v1.37.2."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod requires no k8s.io/kubernetes"
    return found[1]


def _given(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    path = Path(assets or "/nowhere", name).absolute()
    return path if os.access(path, os.X_OK) else None


def _source(name: str) -> _Source:
    if name in _OLDEST_HELM:
        kubernetes = {
            "k8sVersionMajor": "1",
            "k8sVersionMinor": "29",
        }  # what its releases render for by themselves
        linked = {f"helm.sh/helm/v3/pkg/chartutil.{name}": value for name, value in kubernetes.items()}
        return _Source(MODULE / "helm3", _OLDEST_HELM, linked)
    # Without its version linked in, Kubernetes says v0.0.0 and refuses much of its own.
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linked = {f"k8s.io/component-base/version.{name}": value for name, value in values.items()}
    return _Source(MODULE, _PACKAGES, linked)


def _build(go: str, name: str, source: _Source, directory: Path) -> None:
    """Builds into place; a killed build leaves no half of a program under its name."""
    print(
        f"building {name} in {directory} (once; minutes when nothing is built yet) ...",
        file=sys.stderr,
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=directory, prefix="building-") as scratch:
        target = Path(scratch) / name
        command = [go, "build", *source.flags(), "-o", str(target), source.packages[name]]
        environ = {**os.environ, **_ENVIRON}
        done = subprocess.run(
            command, cwd=source.module, env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"go build {name}: {' '.join(done.stderr.strip().splitlines()[-2:])}"
            raise NotAvailableError(message)
        target.rename(directory / name)


def _main(names: list[str]) -> None:
    try:
        for name in names or [*_PACKAGES, *_OLDEST_HELM]:
            print(program(name))
    except NotAvailableError as missing:
        sys.exit(f"NOT RUN: {missing}")


if __name__ == "__main__":
    _main(sys.argv[1:])
