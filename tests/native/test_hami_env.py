"""HAMi-core's environment as the interceptor reads it when there is no control page."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from libshim.pages import create_usage, read_usage

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
    ("CUDA_DEVICE_MEMORY_LIMIT", "0", "unset it for no limit"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "99999999999999999999", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "18446744073709551615g", "such as 2g"),
    ("CUDA_DEVICE_MEMORY_LIMIT_16", "2g", "names no card"),
    ("CUDA_DEVICE_MEMORY_LIMIT_", "2g", "names no card"),
    ("CUDA_DEVICE_MEMORY_LIMITS", "2g", "names no card"),
    ("CUDA_DEVICE_SM_LIMIT", "101", "1 to 100"),
    ("CUDA_DEVICE_SM_LIMIT_1", "30%", "1 to 100"),
    ("CUDA_DISABLE_CONTROL", "maybe", "neither true nor false"),
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
