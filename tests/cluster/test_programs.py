"""How the programs are had: taken where they are given, built once where there is Go, and missed in words."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.programs import kubernetes_version, program
from tests.tools.debian import NotAvailableError

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.9; exit; fi
echo "$@" >> {log}
while [ $# -gt 2 ]; do [ "$1" = -o ] && out=$2; shift; done
printf half > "$out"
{end}
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go that writes down how it is called, alone on the PATH; the cache is empty. Returns its log."""
    for name in ("bin", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("ALIQUOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "log"


def install(log: Path, end: str) -> None:
    """Puts the Go there; its build ends as told."""
    path = log.parent / "bin" / "go"
    path.write_text(GO.format(log=log, end=end))
    path.chmod(0o755)


def test_a_program_is_built_once_with_its_version(go: Path):
    """The second call finds what the first built."""
    install(go, "exit 0")
    path = program("kubelet")
    assert path.read_text() == "half"
    assert program("kubelet") == path
    (build,) = go.read_text().splitlines()
    assert build.endswith(" k8s.io/kubernetes/cmd/kubelet")
    assert f"gitVersion={kubernetes_version()} " in build


def test_the_oldest_helm_is_built_beside_the_newest(go: Path):
    """Of a module of its own, so that neither is built anew with the other."""
    install(go, "exit 0")
    oldest, newest = program("helm3"), program("helm")
    assert oldest.parent != newest.parent
    builds = [line.split()[-1] for line in go.read_text().splitlines()]
    assert builds == ["helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v4/cmd/helm"]


@pytest.mark.parametrize("end", ["echo 'no space left on device' >&2; exit 1", "kill -9 $$"])
def test_a_build_that_ends_early_leaves_no_program(go: Path, end: str):
    """Half a program never lies under its name; the next call builds."""
    install(go, end)
    with pytest.raises(NotAvailableError, match=r"go build etcd: (no space left)?"):
        program("etcd")
    install(go, "exit 0")
    assert program("etcd").read_text() == "half"
    assert len(go.read_text().splitlines()) == 2


def test_given_binaries_are_used_instead(go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """KUBEBUILDER_ASSETS comes first for what it has; what it has not is built."""
    install(go, "exit 0")
    (tmp_path / "assets").mkdir()
    given = tmp_path / "assets" / "kubectl"
    given.symlink_to("/bin/true")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given.parent))
    assert program("kubectl") == given
    assert not go.exists()
    assert program("helm").parent != given.parent


def test_without_go_the_tests_are_not_run_and_say_why(
    go: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The skip says NOT RUN, and pytest never counts it as passed."""
    test = tmp_path / "test_it.py"
    test.write_text(
        "from tests.cluster.programs import program_or_skip\ndef test_it(): program_or_skip('etcd')\n"
    )
    monkeypatch.setenv("PATH", str(go.parent / "bin"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-o",
        f"pythonpath={Path.cwd()}",
    ]
    done = subprocess.run([*command, str(test)], capture_output=True, text=True, check=False)
    assert "NOT RUN: etcd: no Go to build it with" in done.stdout
    assert "1 skipped" in done.stdout
    assert "passed" not in done.stdout
