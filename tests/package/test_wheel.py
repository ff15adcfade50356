"""`make wheel`, installed as a stranger would: an empty environment, outside of the checkout, without a compiler."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tests.package.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
NATIVE = {
    "aliquot/arbiter/_arbiter.abi3.so",
    "aliquot/libshim/_pages.abi3.so",
    "aliquot/libshim/forwarder/libcuda.so.1",
    "aliquot/libshim/forwarder/libnvidia-ml.so.1",
    "aliquot/libshim/libaliquot.so",
    "aliquot/sandbox/driver/build/libcuda.so.1",
    "aliquot/sandbox/driver/build/libjudge.so",
    "aliquot/sandbox/driver/build/libnvidia-ml.so.1",
    "aliquot/scheduler_ext/scoring/_scoring.abi3.so",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each processor, as `make wheel` builds it."""
    directory = tmp_path_factory.mktemp("dist")
    make = ["make", "--no-print-directory", "-C", ROOT, "wheel", f"DIST={directory}"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {next(name for name in MACHINES if name in wheel.name): wheel for wheel in directory.iterdir()}


@pytest.fixture(scope="module")
def bare(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with the wheel alone, in a directory that pip cannot name in the first line of a script."""
    made = Installation(tmp_path_factory.mktemp("bare one"))
    made.install(str(wheels["x86_64"]))
    return made


@pytest.fixture(scope="module")
def whole(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with what the demo needs, too."""
    made = Installation(tmp_path_factory.mktemp("whole"))
    made.install(f"{wheels['x86_64']}[demo]")
    return made


@pytest.fixture(params=sorted(MACHINES))
def processor(request: pytest.FixtureRequest) -> str:
    """Each processor that there is a wheel for."""
    return str(request.param)


def libraries(wheel: Path) -> Iterator[tuple[str, ELFFile]]:
    """The shared objects of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(r"\.so(\.\d+)?$", name):
                yield name, ELFFile(BytesIO(archive.read(name)))


def test_it_is_for_its_processor_and_any_glibc_since_2_17(wheels: dict[str, Path], processor: str):
    """Its name says so to pip, and every library in it keeps it. There is no aarch64 here to run one on."""
    wheel = wheels[processor]
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_2_17_{processor}.whl")
    found = dict(libraries(wheel))
    assert found.keys() == NATIVE
    for name, library in found.items():
        assert library["e_machine"] == MACHINES[processor], name
        needs = library.get_section_by_name(".gnu.version_r")
        assert isinstance(needs, GNUVerNeedSection), name
        versions = {str(one.name) for _, ones in needs.iter_versions() for one in ones}
        assert all(version.startswith("GLIBC_") for version in versions), (name, versions)
        newest = max(tuple(map(int, re.findall(r"\d+", version))) for version in versions)
        assert newest <= (2, 17), (name, versions)


def test_it_names_no_directory_of_the_builder(wheels: dict[str, Path], processor: str):
    """Neither in a library nor in a text."""
    with zipfile.ZipFile(wheels[processor]) as archive:
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), name


def test_one_name_at_the_top_level(bare: Installation):
    """A user's own `plugin` or `sandbox` is no other module afterwards."""
    wheel_files = {path.name for path in bare.packages.iterdir() if path.name.startswith("aliquot")}
    assert wheel_files == {"aliquot", "aliquot-0.1.0.dist-info"}
    for name in ("arbiter", "libshim", "plugin", "sandbox", "scheduler_ext", "webhook"):
        assert not (bare.packages / name).exists()


def test_a_missing_extra_is_named_with_the_command(bare: Installation):
    """Where a traceback came."""
    done = bare.aliquot("demo")
    assert done.returncode == 125
    assert done.stderr == (
        "Error: aliquot demo needs common-expression-language, jsonpatch, cuda-bindings, cuda-core: "
        "pip install 'aliquot[demo]'\n"
    )
    done = bare.aliquot("simulate", "--plot", "out.png", "somewhere")
    assert "Traceback" not in done.stderr


def test_slices_of_a_simulated_card_without_compiler(bare: Installation):
    """`run`, `cards`, `top` and `resize`, with nothing but the wheel."""
    words = ("run", "--simulate", "--mem", "1Gi", sys.executable, "-c", "input()")
    with subprocess.Popen(
        bare.command(*words), cwd=bare.directory, env=bare.variables, stdin=subprocess.PIPE, text=True
    ) as process:
        try:
            gib = 1 << 30
            name = str(process.pid)
            wait_for_promised(bare, gib)
            done = bare.aliquot("resize", "--simulate", name, "--mem", "2Gi")
            assert done.returncode == 0, done.stderr
            wait_for_promised(bare, 2 * gib)
            done = bare.aliquot("top", "--simulate", "--once", "--interval", "0.1")
            assert done.returncode == 0, done.stderr
            assert name in done.stdout
        finally:
            process.communicate("\n")
    assert process.returncode == 0


def wait_for_promised(installation: Installation, size: int) -> None:
    """Waits until the runs on all cards have been promised so many bytes."""
    for _ in range(200):
        done = installation.aliquot("cards", "--simulate", "--json")
        assert done.returncode == 0, done.stderr
        if sum(card["promisedBytes"] for card in json.loads(done.stdout)["cards"]) == size:
            return
    raise AssertionError(f"never {size} bytes promised: {done.stdout}")


def test_the_readmes_commands(whole: Installation):
    """The first command that a newcomer copies prints what the README says, and the demo tells its whole story."""
    readme = (ROOT / "README.md").read_text()
    command, *expected = readme.partition("$ .venv/bin/aliquot run ")[2].partition("\n```")[0].splitlines()
    program = whole.directory / "fill.py"
    program.write_bytes((ROOT / "examples" / "run" / "fill.py").read_bytes())
    replaced = {".venv/bin/python": whole.python, "examples/run/fill.py": program}
    done = whole.aliquot("run", *(replaced.get(word, word) for word in command.split()))
    told = re.sub(r"\b(run|resize) \w{4}\b", r"\1 kx7f", done.stderr) + done.stdout
    assert sorted(told.splitlines()) == sorted(expected)
    done = whole.aliquot("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 6, done.stdout
