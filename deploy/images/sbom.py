"""Writes what the images are made of, as a CycloneDX bill of materials: from the files that say so, and nothing else.

    python deploy/images/sbom.py > sbom.json

The base image by its digest, Debian's packages by name (their versions are those of the base's release when the image
is built), Python's by version and the hashes of the wheels that pip may take, our own parts in C by a digest of their
sources. What builds them and is in no image has the scope `excluded`. The same tree gives the same bytes. Needs the
dependency group `test`.
"""

import hashlib
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PIN: Final = re.compile(r"^([\w.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *$", re.MULTILINE)
BASE: Final = re.compile(r"^FROM (\w+):([\w.-]+)@sha256:([0-9a-f]{64}) AS base$", re.MULTILINE)
NATIVE: Final = {
    "libaliquot.so": ("libshim/include", "libshim/src", "libshim/src/hooks"),
    "libcuda.so.1": ("libshim/forwarder", "libshim/src/hooks"),
    "libnvidia-ml.so.1": ("libshim/forwarder", "libshim/src/hooks"),
    "_pages": ("libshim/include", "libshim/_pages_build.py"),
    "_arbiter": ("arbiter/src", "arbiter/_arbiter_build.py", "libshim/include"),
    "_scoring": ("scheduler_ext/scoring/src", "scheduler_ext/scoring/_scoring_build.py"),
}
"""Our parts in C, each with its sources."""
SOURCES: Final = {".c", ".h", ".def", ".map", ".mk", ".py"}
SPACE: Final = uuid.UUID("6f1f3c1e-2b9a-5d0e-9f65-8f0f7b8f6a11")
"""Of serial numbers, which follow from the contents."""
LONG_AGO: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A bill has a date, and this one would have another each time."""


def bill() -> Bom:
    """All that the images are made of, below the program itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    ours = Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=name,
        licenses=[DisjunctiveLicense(id=project["license"])],
    )
    found = [base_image(), *debian(), *python("requirements.txt"), *native(version)]
    tools = list(python("tools.txt", ComponentScope.EXCLUDED))
    known = {component.bom_ref.value for component in found}
    bom = Bom(components=[*found, *(tool for tool in tools if tool.bom_ref.value not in known)])
    bom.metadata.component, bom.metadata.timestamp = ours, LONG_AGO
    bom.register_dependency(ours, found)
    contents = repr(sorted((c.bom_ref.value or "", sorted(h.content for h in c.hashes)) for c in found))
    bom.serial_number = uuid.uuid5(SPACE, f"{version} {contents}")
    return bom


def base_image() -> Component:
    """The image that ours are made from."""
    (found,) = BASE.findall((HERE / "Dockerfile").read_text())
    name, tag, digest = found
    purl = PackageURL("oci", name=name, version=f"sha256:{digest}", qualifiers={"tag": tag})
    return _component(ComponentType.CONTAINER, purl, name, tag, [digest])


def debian() -> Iterator[Component]:
    """Debian's packages, without versions: those are its own affair."""
    for name in (HERE / "packages.txt").read_text().split():
        yield _component(ComponentType.LIBRARY, PackageURL("deb", "debian", name), name, None)


def python(file: str, scope: ComponentScope = ComponentScope.REQUIRED) -> Iterator[Component]:
    """The packages of a lock."""
    text = (HERE / file).read_text().replace("\\\n", " ")
    for name, version, hashes in PIN.findall(text):
        digests = re.findall(r"[0-9a-f]{64}", hashes)
        yield _component(
            ComponentType.LIBRARY,
            PackageURL("pypi", name=name, version=version),
            name,
            version,
            digests,
            scope,
        )


def native(version: str) -> Iterator[Component]:
    """Our own libraries, each with a digest of its sources' names and contents."""
    for name, places in NATIVE.items():
        digest = hashlib.sha256()
        for file in sorted(sources(places)):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(ROOT).as_posix()} {content}\n".encode())
        library = Component(name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"aliquot/{name}")
        library.properties.add(Property(name="aliquot:sources:sha256", value=digest.hexdigest()))
        yield library


def sources(places: tuple[str, ...]) -> set[Path]:
    """The source files at some places: of a folder all that lie in it."""
    found: set[Path] = set()
    for place in places:
        path = ROOT / place
        found |= {path} if path.is_file() else {file for file in path.iterdir() if file.suffix in SOURCES}
    return found


def _component(  # noqa: PLR0917 - what a component has
    kind: ComponentType,
    purl: PackageURL,
    name: str,
    version: str | None,
    digests: list[str] | None = None,
    scope: ComponentScope = ComponentScope.REQUIRED,
) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests or ()]
    return Component(
        name=name, version=version, type=kind, purl=purl, bom_ref=purl.to_string(), hashes=hashes, scope=scope
    )


if __name__ == "__main__":
    sys.stdout.write(JsonV1Dot6(bill()).output_as_string(indent=2) + "\n")
