"""The bill of materials says what the images' locks say, no more and no less, and always in the same words."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.charts import ROOT
from tests.deploy.test_images import DOCKERFILE, IMAGES, PROJECT, locked

Json = dict[str, Any]
PROGRAM = IMAGES / "sbom.py"


def written(directory: Path, **environment: str) -> str:
    """What the command writes."""
    command = [sys.executable, str(PROGRAM)]
    environ = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module", name="text")
def write() -> str:
    """The bill."""
    return written(ROOT)


@pytest.fixture(scope="module", name="components")
def read(text: str) -> dict[str, Json]:
    """Its components by their references."""
    return {component["bom-ref"]: component for component in json.loads(text)["components"]}


def digests(component: Json) -> set[str]:
    """All that a component may be."""
    return {f"--hash=sha256:{one['content']}" for one in component.get("hashes", ())}


def test_it_is_what_the_schema_says(text: str):
    """Strictly, and so is nothing that is not: a version that is no text, say. The import takes seconds."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"version": "0.1.0"', '"version": 1')) is not None


def test_it_is_the_same_each_time(text: str, tmp_path: Path):
    """Whoever writes it, from whatever directory, and however Python is made to hash."""
    assert written(tmp_path, TZ="Asia/Tokyo", PYTHONHASHSEED="7", HOME=str(tmp_path)) == text


@pytest.mark.parametrize(("lock", "scope"), [("requirements.txt", "required"), ("tools.txt", "excluded")])
def test_python_packages_are_those_of_the_lock(components: dict[str, Json], lock: str, scope: str):
    """With the same versions and hashes; what is in the images is not called a tool."""
    shipped = locked("requirements.txt").keys()
    told = {
        component["purl"].removeprefix("pkg:pypi/"): digests(component)
        for component in components.values()
        if component.get("purl", "").startswith("pkg:pypi/") and component["scope"] == scope
    }
    assert told == {
        f"{name}@{version}": set(hashes)
        for name, (version, hashes) in locked(lock).items()
        if scope == "required" or name not in shipped
    }


def test_base_and_debian_packages_are_those_of_the_recipe(components: dict[str, Json]):
    """By the digest that the Dockerfile pins, and by the names that it installs."""
    (base,) = [one for one in components.values() if one["type"] == "container"]
    assert f"@sha256:{base['hashes'][0]['content']} AS base" in DOCKERFILE.read_text()
    debian = {one["name"] for one in components.values() if one.get("purl", "").startswith("pkg:deb/debian/")}
    assert debian == set((IMAGES / "packages.txt").read_text().split())


def test_our_own_libraries_are_all_there(components: dict[str, Json]):
    """Those that the package brings, each with a digest of sources that change with it."""
    ours = {
        name.removeprefix("aliquot/"): one for name, one in components.items() if name.startswith("aliquot/")
    }
    assert {one["version"] for one in ours.values()} == {PROJECT["project"]["version"]}
    brought = {"libaliquot.so", "libcuda.so.1", "libnvidia-ml.so.1"}
    for pattern in ("*/_*_build.py", "*/*/_*_build.py"):
        brought |= {path.stem.removesuffix("_build") for path in ROOT.glob(pattern)}
    assert ours.keys() == brought
    values = [one["properties"][0]["value"] for one in ours.values()]
    assert len(set(values)) == len(values) - 1  # the two forwarders are of one source
