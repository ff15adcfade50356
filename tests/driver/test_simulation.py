"""On a machine without cards the simulated driver answers as NVIDIA's driver does."""

import subprocess
from pathlib import Path

import pytest

from aliquot.sandbox import probe
from aliquot.sandbox.gpus import SimMachine
from tests.driver.drivers import Driver, exported
from tests.driver.flavours import BARE, Ground
from tests.driver.programs import program
from tests.driver.questions import IN_DRIVER, rows
from tests.native.forwarded import SONAMES

pytestmark = pytest.mark.driver

CUDA, NVML = SONAMES
CUDA_VERSION = {"535": 12020, "550": 12040}
DATA = Path(__file__).parents[1] / "data" / "probe"
GRAPHICS = ("cuGL", "cuEGL", "cuVDPAU", "cuGraphicsGL", "cuGraphicsEGL", "cuGraphicsVDPAU")
"""Entries that work with OpenGL, EGL and VDPAU: the simulation has none of them."""
NO_STATUS = {"nvmlErrorString"}
STARTS = {"nvmlInit", "nvmlInitWithFlags", "nvmlInit_v2"}
"""The simulated machine has the kernel's part of the driver, where these tests have none."""


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """A simulated machine without cards."""
    made = SimMachine(tmp_path_factory.mktemp("simulated") / "machine", [])
    made.create()
    return made


def transcript_of(driver: Driver) -> str:
    """What is kept of a branch's answers."""
    return (DATA / f"no-card-{driver.branch}.jsonl").read_text()


def test_the_driver_answers_as_it_did(ground: Ground):
    """What is kept of the branch is what its libraries say today."""
    assert probe.compare(transcript_of(ground.driver), probe.run(ground.env(BARE))) == []


def test_the_probe_hears_the_same_in_a_slice(ground: Ground, flavour: str):
    """Every answer is the driver's own."""
    assert probe.compare(transcript_of(ground.driver), probe.run(ground.env(flavour))) == []


def test_the_simulation_answers_the_probe_as_the_driver(driver: Driver, machine: SimMachine):
    """Every question, but for the driver's version."""
    simulated = probe.run(machine.env())
    differences = probe.compare(transcript_of(driver), simulated)
    assert {d.probe for d in differences} == {"card.driver_version", "card.driver_version.started"}


def ask(libraries: Path, env: dict[str, str], command: list[str | Path], questions: list[str]) -> list[str]:
    """Runs one of the C programs, which answers each line with a line."""
    path = {"LD_LIBRARY_PATH": str(libraries), **env}
    text = "".join(f"{question}\n" for question in questions)
    done = subprocess.run(command, env=path, input=text, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(questions)
    return done.stdout.splitlines()


def looked_up(libraries: Path, env: dict[str, str], questions: list[str]) -> list[str]:
    """Result, status and symbol for each question to cuGetProcAddress."""
    library = (libraries / CUDA).resolve()
    names = {f"{IN_DRIVER}{place.offset:x}": name for name, place in exported(library).items()}
    command: list[str | Path] = [program("lookups", "places"), CUDA, library, "none", "none", "local"]
    answers = [answer.rpartition(" ") for answer in ask(libraries, env, command, questions)]
    return [f"{head} {names.get(place, place)}" for head, _, place in answers]


def test_the_simulation_knows_the_versions_and_flavours_of_every_entry(driver: Driver, machine: SimMachine):
    """Up to the driver's own version cuGetProcAddress of both gives the same function, or the same reason for none."""
    newest = CUDA_VERSION[driver.branch]
    sinces = {since for found in rows().values() for since in found}
    versions = sorted({0, newest, *(v for since in sinces for v in (since - 1, since) if v <= newest)})
    names = [n for n, found in rows().items() if min(found) <= newest and not n.startswith(GRAPHICS)]
    questions = [
        f"gpa\t{name}\t{version}\t{flag}" for name in names for version in versions for flag in range(5)
    ]
    theirs = looked_up(driver.libraries, {}, questions)
    ours = looked_up(machine.lib_dir, machine.env(), questions)
    pairs = zip(questions, theirs, ours, strict=True)
    # An entry that the driver has not, though its version would allow it, came with a later branch or never.
    lacking = {q.split("\t")[1] for q, their, _ in pairs if their == "0 1 -"}
    pairs = zip(questions, theirs, ours, strict=True)
    assert [p for p in pairs if p[1] != p[2] and p[0].split("\t")[1] not in lacking] == []
    assert len(lacking) < len(names) // 10


def called(
    libraries: Path, env: dict[str, str], soname: str, names: list[str], *first: str
) -> dict[str, str]:
    """What each function answers to nothing but zeros, in a process that has called `first`."""
    command: list[str | Path] = [program("calls"), soname, *first]
    return dict(zip(names, ask(libraries, env, command, names), strict=True))


@pytest.mark.parametrize("first", [(), ("nvmlInit_v2",)], ids=["before", "after"])
def test_nvml_answers_zeros_as_the_drivers_does(driver: Driver, machine: SimMachine, first: tuple[str, ...]):
    """Before its start, which fails without a card's driver, and after it."""
    names = sorted(set(driver.exports(NVML)) & set(exported(machine.lib_dir / NVML)) - NO_STATUS - STARTS)
    assert len(names) > 300
    theirs = called(driver.libraries, {}, NVML, names, *first)
    assert called(machine.lib_dir, machine.env(), NVML, names) == theirs
