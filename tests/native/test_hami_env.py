"""HAMi-core's environment as the interceptor reads it when there is no control page."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage, read_usage
from aliquot.sandbox.gpus import SimMachine
from tests.native.tenants import interceptor

REPOSITORY = Path(__file__).resolve().parents[2]
LIBSHIM = REPOSITORY / "libshim"


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints what hami_env.c reads."""
    program = tmp_path_factory.mktemp("probe") / "hami_env_probe"
    sources = [Path(__file__).with_name("hami_env_probe.c"), LIBSHIM / "src" / "hami_env.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address,undefined", "-g"]
    include = [f"-I{LIBSHIM / 'include'}", f"-I{LIBSHIM / 'src'}"]
    subprocess.run(["cc", *flags, *include, "-o", program, *sources], check=True)
    return program


def read(probe: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What the probe prints in exactly this environment."""
    done = subprocess.run([probe], env=environment, check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("text", "size"),
    [("1073741824", 1 << 30), ("2g", 2 << 30), ("3G", 3 << 30), ("512m", 512 << 20), ("1024K", 1 << 20)],
)
def test_memory_limits_have_the_suffixes_of_hami_core(probe: Path, text: str, size: int):
    """A limit is bytes, or a number with k, m or g in either case."""
    assert read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": text})["memory0"] == str(size)


def test_a_limit_of_one_card_beats_the_one_of_all(probe: Path):
    """The variable with a number speaks for its card, the one without for the others, in any order."""
    seen = read(
        probe,
        {
            "CUDA_DEVICE_MEMORY_LIMIT_1": "1g",
            "CUDA_DEVICE_MEMORY_LIMIT": "4g",
            "CUDA_DEVICE_SM_LIMIT_2": "30",
        },
    )
    assert (seen["memory0"], seen["memory1"], seen["memory15"]) == (str(4 << 30), str(1 << 30), str(4 << 30))
    assert seen["core2"] == "30"
    assert "core0" not in seen


@pytest.mark.parametrize("text", ["0", "100"])
def test_no_core_share_and_a_whole_one_are_no_cap(probe: Path, text: str):
    """HAMi writes 0 for pods without a core limit."""
    seen = read(probe, {"CUDA_DEVICE_SM_LIMIT": text, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
    assert "core0" not in seen
    assert seen["problem"] == ""


def test_the_policy_disable_lifts_the_core_limit_alone(probe: Path):
    """GPU_CORE_UTILIZATION_POLICY=disable leaves memory limited."""
    seen = read(
        probe,
        {
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_LIMIT": "1g",
            "GPU_CORE_UTILIZATION_POLICY": "DISABLE",
        },
    )
    assert "core0" not in seen
    assert seen["memory0"] == str(1 << 30)


@pytest.mark.parametrize("none", ["0", "0m", "0g"])
def test_no_memory_limit_is_written_as_zero(probe: Path, none: str):
    """As in HAMi-core, where a card's 0 leaves it to the limit of all."""
    assert read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": none})["present"] == "0"
    seen = read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_MEMORY_LIMIT_1": none})
    assert seen == read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": "2g"})


def test_an_environment_without_limits_is_none_of_ours(probe: Path):
    """A process without HAMi-core's variables is passed through."""
    assert read(probe, {"CUDA_VISIBLE_DEVICES": "0", "NOISE": ""})["present"] == "0"


@pytest.mark.parametrize(("text", "disabled"), [("true", "1"), ("1", "1"), ("false", "0"), ("", "0")])
def test_control_can_be_switched_off(probe: Path, text: str, disabled: str):
    """CUDA_DISABLE_CONTROL is a yes or a no."""
    assert read(probe, {"CUDA_DISABLE_CONTROL": text})["disabled"] == disabled


BAD = [
    ("CUDA_DEVICE_MEMORY_LIMIT", "2Gi", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "-1", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "none", "0 for no limit"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "99999999999999999999", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "18446744073709551615g", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT_16", "2g", "names no card"),
    ("CUDA_DEVICE_MEMORY_LIMIT_", "2g", "names no card"),
    (
        "CUDA_DEVICE_MEMORY_LIMITS",
        "2g",
        "write CUDA_DEVICE_MEMORY_LIMIT, or CUDA_DEVICE_MEMORY_LIMIT_0 for card 0",
    ),
    ("CUDA_DEVICE_SM_LIMIT", "101", "1 to 100"),
    ("CUDA_DEVICE_SM_LIMIT_1", "30%", "1 to 100"),
    ("CUDA_DISABLE_CONTROL", "maybe", "neither true nor false; write one of them"),
    ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "slice.usage", "no absolute path"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), BAD, ids=[f"{name}={value}" for name, value, _ in BAD])
def test_a_bad_value_is_a_problem_with_a_remedy(probe: Path, name: str, value: str, remedy: str):
    """Whatever cannot be read is named with its value and what to write instead, and counts as a limit."""
    seen = read(probe, {name: value})
    assert seen["present"] == "1"
    assert seen["problem"].startswith(f"{name}={value} ")
    assert remedy in seen["problem"]


def test_a_good_limit_does_not_hide_a_bad_one(probe: Path):
    """One misspelt limit is a problem for the whole environment."""
    seen = read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_SM_LIMIT": "half"})
    assert "CUDA_DEVICE_SM_LIMIT=half" in seen["problem"]


def test_an_overlong_value_is_cut_in_the_message(probe: Path):
    """A value of megabytes ends up neither in a buffer nor on the terminal."""
    seen = read(probe, {"CUDA_DEVICE_MEMORY_LIMIT": "x" * 100_000})
    assert len(seen["problem"]) < 256


def test_the_usage_page_is_made_once_by_whoever_comes_first(probe: Path, tmp_path: Path):
    """Sixteen processes that race leave one good page, open to every user, and nothing else."""
    page = tmp_path / "slice.usage"
    racers = [subprocess.Popen([probe, page], stdout=subprocess.PIPE, text=True) for _ in range(16)]
    said = {racer.communicate(timeout=30)[0] for racer in racers}
    assert said == {f"error none\ninode {page.stat().st_ino}\n"}
    assert list(tmp_path.iterdir()) == [page]
    assert page.stat().st_mode & 0o777 == 0o666
    assert read_usage(page).processes == ()


def test_an_existing_usage_page_is_kept(probe: Path, tmp_path: Path):
    """The second process of a container finds the first one's page."""
    page = tmp_path / "slice.usage"
    create_usage(page)
    inode = page.stat().st_ino
    subprocess.run([probe, page], check=True, capture_output=True)
    assert page.stat().st_ino == inode


def test_a_page_that_cannot_be_made_is_an_error(probe: Path, tmp_path: Path):
    """A missing directory is told with the system's words."""
    done = subprocess.run([probe, tmp_path / "none" / "page"], check=True, capture_output=True, text=True)
    assert done.stdout == "error No such file or directory\n"


# ---- the same, of programs on the simulated machine ----

GIB = 1 << 30
NO_SLICE = 125

ALLOCATE = """
import sys
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(0)[1])
print([cuda.cuMemAlloc(int(size))[0].name for size in sys.argv[1:]], cuda.cuMemGetInfo()[1:], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Environment:
    """A process's HAMi-core environment on the simulated machine."""

    machine: SimMachine
    variables: Mapping[str, str]

    def start(self, program: str, *arguments: object) -> subprocess.Popen[str]:
        """Starts a Python program in it; its errors are kept."""
        environment = {
            **os.environ,
            **self.machine.env(),
            "LD_PRELOAD": str(interceptor()),
            **self.variables,
        }
        command = [sys.executable, "-c", program, *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def allocate(self, *sizes: int) -> tuple[str, str]:
        """What a program that allocates sizes prints, and what it says on stderr."""
        return self.start(ALLOCATE, *sizes).communicate(timeout=30)

    def ended(self, program: str = ALLOCATE, *arguments: object) -> str:
        """What is said of a program that is ended before it gets any memory."""
        process = self.start(program, *arguments)
        said, errors = process.communicate(timeout=30)
        assert (process.returncode, said) == (NO_SLICE, "")
        assert len(errors.splitlines()) == 1
        assert errors.startswith("aliquot: this program was ended: ")
        return errors


@pytest.fixture
def hami(machine: SimMachine, tmp_path: Path) -> Callable[..., Environment]:
    """Makes environments with a shared page in the test's directory."""
    shared = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "slice.usage")}
    return lambda **variables: Environment(machine, {**shared, **variables})


def test_the_memory_limit_holds_for_all_processes(hami: Callable[..., Environment]):
    """Two programs of one page share 2 GiB; both see what is left of it."""
    environment = hami(CUDA_DEVICE_MEMORY_LIMIT="2g")
    holder = environment.start(ALLOCATE, GIB)
    assert holder.stdout is not None
    assert holder.stdout.readline() == f"['CUDA_SUCCESS'] ({GIB}, {2 * GIB})\n"
    said, errors = environment.allocate(GIB + 1, GIB)
    assert said == f"['CUDA_ERROR_OUT_OF_MEMORY', 'CUDA_SUCCESS'] (0, {2 * GIB})\n"
    assert len(errors.splitlines()) == 1
    holder.communicate(timeout=30)


REFUSALS = [
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "2g"},
        (GIB, 2 * GIB, 2 * GIB),
        (
            "CUDA_DEVICE_MEMORY_LIMIT, not the card, refused 2Gi: 1Gi of 2Gi left; "
            "for more, start the program anew with CUDA_DEVICE_MEMORY_LIMIT=3072m"
        ),
    ),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "4g", "CUDA_DEVICE_MEMORY_LIMIT_0": "2g"},
        (GIB, 2 * GIB),
        (
            "CUDA_DEVICE_MEMORY_LIMIT_0, not the card, refused 2Gi: 1Gi of 2Gi left; "
            "for more, start the program anew with CUDA_DEVICE_MEMORY_LIMIT_0=3072m"
        ),
    ),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "2g"},
        (17 * GIB,),
        "CUDA_DEVICE_MEMORY_LIMIT refused 17Gi: 2Gi of 2Gi left, and the whole card has 16Gi",
    ),
]


@pytest.mark.parametrize(("variables", "sizes", "told"), REFUSALS)
def test_refused_memory_is_told_once_with_the_variable_that_limits_it(
    hami: Callable[..., Environment], variables: dict[str, str], sizes: tuple[int, ...], told: str
):
    """What HAMi-core says there, too; the size that is told suffices."""
    said, errors = hami(**variables).allocate(*sizes)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in said
    assert errors == f"aliquot: {told}\n"
    if "start the program anew" in told:
        name, _, enough = told.rpartition(" ")[2].partition("=")
        assert "OUT_OF_MEMORY" not in hami(**{**variables, name: enough}).allocate(*sizes[:2])[0]


@pytest.mark.parametrize(("quiet", "lines"), [("1", 0), ("0", 1)])
def test_that_memory_was_refused_can_be_silenced(hami: Callable[..., Environment], quiet: str, lines: int):
    """By the variable that silences it in `aliquot run`, too."""
    said, errors = hami(CUDA_DEVICE_MEMORY_LIMIT="2g", ALIQUOT_QUIET=quiet).allocate(3 * GIB)
    assert said.startswith("['CUDA_ERROR_OUT_OF_MEMORY']")
    assert len(errors.splitlines()) == lines


def test_a_bad_value_ends_the_program_in_one_line(hami: Callable[..., Environment]):
    """A misspelt limit is no licence: the line names variable, value and remedy."""
    errors = hami(CUDA_DEVICE_MEMORY_LIMIT="2Gi").ended()
    assert "CUDA_DEVICE_MEMORY_LIMIT=2Gi" in errors
    assert "such as 2g" in errors


def test_a_bad_value_ends_no_program_that_uses_no_card(hami: Callable[..., Environment]):
    """A shell or an editor with the variables in its environment goes on, so that they can be corrected."""
    process = hami(CUDA_DEVICE_MEMORY_LIMIT="2Gi").start("print('worked')")
    assert process.communicate(timeout=30) == ("worked\n", "")


def test_a_page_that_cannot_be_made_ends_the_program(hami: Callable[..., Environment], tmp_path: Path):
    """The line names the file, what is wrong with it, and the variable that names another."""
    page = tmp_path / "none" / "slice.usage"
    errors = hami(CUDA_DEVICE_MEMORY_LIMIT="2g", CUDA_DEVICE_MEMORY_SHARED_CACHE=str(page)).ended()
    assert f"{page}: No such file or directory; CUDA_DEVICE_MEMORY_SHARED_CACHE names another" in errors


MISNUMBERED = [
    ({"CUDA_DEVICE_MEMORY_LIMIT_5": "1g"}, "CUDA_DEVICE_MEMORY_LIMIT_5 names no card", "this program sees 2"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT_2": "30"}, "CUDA_DEVICE_SM_LIMIT_2", "sees 2"),
    ({"CUDA_DEVICE_MEMORY_LIMIT_1": "1g", "CUDA_VISIBLE_DEVICES": "1"}, "LIMIT_1 names no card", "sees 1"),
]


@pytest.mark.parametrize(("variables", "words", "count"), MISNUMBERED)
def test_a_limit_of_no_card_ends_a_program_that_would_have_none(
    hami: Callable[..., Environment], variables: dict[str, str], words: str, count: str
):
    """Meant for this card and counted wrongly, it must not become no limit."""
    errors = hami(**variables).ended()
    assert words in errors
    assert count in errors
    assert "write CUDA_DEVICE_" in errors


@pytest.mark.parametrize("number", [0, 1])
def test_a_limit_of_no_card_beside_those_of_all_cards_is_no_mistake(
    hami: Callable[..., Environment], number: int
):
    """One environment for machines of several sizes: each card that is there has its limit."""
    variables = {f"CUDA_DEVICE_MEMORY_LIMIT_{card}": "1g" for card in range(8)}
    said, errors = hami(**variables, CUDA_VISIBLE_DEVICES=str(number)).allocate(GIB + 1, GIB)
    assert said.startswith("['CUDA_ERROR_OUT_OF_MEMORY', 'CUDA_SUCCESS']")
    assert errors.startswith("aliquot: CUDA_DEVICE_MEMORY_LIMIT_0, not the card, refused")


def test_a_limit_of_another_card_leaves_this_one_without(hami: Callable[..., Environment]):
    """Card 1 is there, and its limit is its own."""
    said, errors = hami(CUDA_DEVICE_MEMORY_LIMIT_1="1g").allocate(GIB + 1)
    assert said.startswith("['CUDA_SUCCESS']")
    assert errors == ""


def test_hami_cores_own_region_is_left_to_it(hami: Callable[..., Environment], tmp_path: Path):
    """A file that is none of ours stays as it is; the processes share a page beside it."""
    region = b"\x00\x12\x30\x01" * 300_000
    (tmp_path / "slice.usage").write_bytes(region)
    environment = hami(CUDA_DEVICE_MEMORY_LIMIT="2g")
    holder = environment.start(ALLOCATE, GIB)
    assert holder.stdout is not None
    assert holder.stdout.readline() == f"['CUDA_SUCCESS'] ({GIB}, {2 * GIB})\n"
    assert environment.allocate(GIB + 1)[0].startswith("['CUDA_ERROR_OUT_OF_MEMORY']")
    holder.communicate(timeout=30)
    assert (tmp_path / "slice.usage").read_bytes() == region
    assert read_usage(tmp_path / "slice.usage.aliquot").cards[0].memory_peak_bytes == GIB


def test_a_damaged_page_of_ours_is_not_stepped_around(hami: Callable[..., Environment], tmp_path: Path):
    """What begins as a page and is cut short keeps no limits."""
    create_usage(tmp_path / "slice.usage")
    os.truncate(tmp_path / "slice.usage", 4096)
    assert "cut short" in hami(CUDA_DEVICE_MEMORY_LIMIT="2g").ended()


def test_a_container_built_around_hami_core_works_with_ours_in_its_place(
    hami: Callable[..., Environment], tmp_path: Path
):
    """The library lies under HAMi-core's name, and the environment is what its device plugin writes."""
    library = tmp_path / "vgpu" / "libvgpu.so"
    library.parent.mkdir()
    shutil.copyfile(interceptor(), library)
    environment = hami(
        LD_PRELOAD=str(library),
        CUDA_DEVICE_MEMORY_LIMIT_0="2048m",
        CUDA_DEVICE_SM_LIMIT="30",
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(tmp_path / "vgpu" / "GPU-1.cache"),
        CUDA_OVERSUBSCRIBE="true",
        LIBCUDA_LOG_LEVEL="1",
        CUDA_TASK_PRIORITY="1",
        GPU_CORE_UTILIZATION_POLICY="force",
        ACTIVE_OOM_KILLER="true",
        CUDA_REDIRECT=str(library),
    )
    said, errors = environment.allocate(2 * GIB + 1, 2 * GIB)
    assert said == f"['CUDA_ERROR_OUT_OF_MEMORY', 'CUDA_SUCCESS'] (0, {2 * GIB})\n"
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=2080m" in errors


def test_control_that_is_switched_off_limits_nothing(hami: Callable[..., Environment]):
    """CUDA_DISABLE_CONTROL passes everything through."""
    environment = hami(CUDA_DEVICE_MEMORY_LIMIT="2g", CUDA_DISABLE_CONTROL="true")
    assert environment.allocate(3 * GIB)[0].startswith("['CUDA_SUCCESS']")


def test_a_control_page_beats_the_environment(
    hami: Callable[..., Environment], machine: SimMachine, tmp_path: Path
):
    """Where there is a page, no HAMi-core variable widens or narrows it."""
    limit = CardLimit(machine.cards[0].uuid, GIB)
    create_control(tmp_path / "control", Control("test/hami", (limit,)))
    create_usage(tmp_path / "usage")
    pages = {"ALIQUOT_CONTROL_PAGE": str(tmp_path / "control"), "ALIQUOT_USAGE_PAGE": str(tmp_path / "usage")}
    environment = hami(CUDA_DEVICE_MEMORY_LIMIT="8g", CUDA_DISABLE_CONTROL="true", **pages)
    said, errors = environment.allocate(GIB + 1, GIB)
    assert said.startswith("['CUDA_ERROR_OUT_OF_MEMORY', 'CUDA_SUCCESS']")
    assert errors == "", "a pod's stderr belongs to the program"
