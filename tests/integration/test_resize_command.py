"""`aliquot resize`: other limits for a run that goes on."""

import fcntl
import subprocess
from pathlib import Path

import pytest

from aliquot.cli.runs.registry import Registry
from aliquot.cli.runs.slices import Slice
from aliquot.libshim.control_page import read_control
from tests.integration.shells import ALIQUOT, Shell, Tenant
from tests.tools.kills import restored, states_during

GIB = 1 << 30


def resize(shell: Shell, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`aliquot resize --simulate …`."""
    return shell.aliquot("resize", "--simulate", *arguments)


def resized(shell: Shell, *arguments: str) -> str:
    """The same, which must succeed; what it said."""
    done = resize(shell, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_raised_limit_holds_at_once_without_a_restart(shell: Shell):
    """What was refused is given after the limit was raised, to the same process, which sees the larger card."""
    tenant = Tenant(shell, "--mem", "2Gi")
    assert tenant.ask("alloc", 3072) == "CUDA_ERROR_OUT_OF_MEMORY"
    (run,) = shell.run_directories()
    assert resized(shell, tenant.name, "--mem", "6Gi") == f"run {run}: 6Gi, uncapped (was 2Gi, uncapped)\n"
    assert tenant.ask("total") == "6144"
    assert tenant.ask("alloc", 3072) == "CUDA_SUCCESS"
    assert shell.promised() == [6 * GIB, 0]
    tenant.end()


def test_lowering_below_what_is_in_use_refuses_new_memory_and_kills_nothing(shell: Shell):
    """The run keeps what it has and goes on; the command says so, and what is not used of the card is free."""
    tenant = Tenant(shell, "--mem", "8Gi")
    assert tenant.ask("alloc", 6144) == "CUDA_SUCCESS"
    said = resized(shell, tenant.name, "--mem", "4Gi")
    assert "it uses 6" in said
    assert "more than that: it keeps them, and gets no more until it uses less" in said
    assert tenant.ask("alloc", 1) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert tenant.process.poll() is None
    assert shell.promised() == [4 * GIB, 0]
    refused = shell.aliquot("run", "--simulate", "--card", "0", "--mem", "11Gi", "true")
    assert refused.returncode == 125, "6 GiB are in use"
    assert shell.aliquot("run", "--simulate", "--card", "0", "--mem", "9Gi", "true").returncode == 0
    assert resize(shell, tenant.name, "--mem", "16Gi").returncode == 0, "its own use is in nobody's way"
    tenant.end()


def test_growing_respects_what_others_hold(shell: Shell):
    """A run grows to the last byte that the others leave of its card, and not by a MiB more."""
    small, large = (
        Tenant(shell, "--mem", "2Gi", "--core", "30"),
        Tenant(shell, "--mem", "10Gi", "--core", "50"),
    )
    refused = resize(shell, small.name, "--mem", "7Gi")
    assert refused.returncode == 125
    assert "no room to grow to 7Gi and 30 %: on card 0" in refused.stderr
    assert "at most 6Gi and 50 % of its time beside the others" in refused.stderr
    assert resize(shell, small.name, "--core", "51").returncode == 125
    assert small.ask("total") == "2048"
    resized(shell, small.name, "--mem", "6Gi", "--core", "50")
    assert small.ask("total") == "6144"
    small.end()
    large.end()


RELATIVE = [
    (["--mem", "+512Mi"], "2560Mi, 30 %"),
    (["--mem", "-512Mi"], "1536Mi, 30 %"),
    (["--mem", "50%"], "8Gi, 30 %"),
    (["--mem", "1G"], "954Mi (1G is decimal, unlike 1Gi), 30 %"),
    (["--mem", "+1.5G"], "3479Mi (1.5G is decimal, unlike 1.5Gi), 30 %"),
    (["--core", "+10"], "2Gi, 40 %"),
    (["--core", "-10%"], "2Gi, 20 %"),
    (["--core", "none"], "2Gi, uncapped"),
]


@pytest.mark.parametrize(("change", "after"), RELATIVE, ids=[" ".join(row[0]) for row in RELATIVE])
def test_a_change_may_be_relative(shell: Shell, change: list[str], after: str):
    """A sign says how much more or less; a percentage of memory is of the card."""
    with shell.start("--mem", "2Gi", "--core", "30", "--", "sh", "-c", "echo ready; read x") as run:
        assert run.stdout
        assert run.stdout.readline() == "ready\n"
        (name,) = shell.run_directories()
        assert resized(shell, name, *change) == f"run {name}: {after} (was 2Gi, 30 %)\n"
        run.communicate("", timeout=60)


def test_a_run_has_one_id_in_every_command(shell: Shell):
    """What `run` says, `cards` and `top` show, `resize` takes; as it takes the pids, and the id as pages have it."""
    tenant = Tenant(shell, "--mem", "2Gi")
    (name,) = shell.run_directories()
    table = shell.aliquot("cards", "--simulate").stdout.splitlines()
    assert table[2].split() == ["id", "pid", "memory", "used", "core", "command"]
    assert table[3].split()[:2] == [name, tenant.name]
    processes = shell.cards()[0]["slices"][0]["processes"]  # type: ignore[index]
    for known in (name, f"run/{name}", tenant.name, *map(str, processes)):
        assert resized(shell, known, "--mem", "2Gi").startswith(f"run {name}: ")
    refused = resize(shell, "zzzz", "--mem", "3Gi")
    assert f"there is no run 'zzzz'; there are {name} (" in refused.stderr
    tenant.end()


def test_a_run_of_the_simulated_machine_is_found_without_the_option(shell: Shell):
    """The id is enough: what is printed to be typed works as it stands."""
    tenant = Tenant(shell, "--mem", "2Gi")
    done = shell.aliquot("resize", *shell.run_directories(), "--mem", "+1Gi")
    assert (done.returncode, done.stderr) == (0, "")
    assert tenant.ask("total") == "3072"
    tenant.end()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_a_wrong_id_is_named_where_only_the_simulated_machine_has_runs(shell: Shell):
    """Without the option and without a driver it is the id that is wrong."""
    tenant = Tenant(shell, "--mem", "2Gi")
    done = shell.aliquot("resize", "zzzz", "--mem", "1Gi")
    assert done.returncode == 125
    assert f"there is no run 'zzzz'; there are {shell.run_directories()[0]} (" in done.stderr
    tenant.end()


def test_a_raised_core_limit_speeds_the_run_up(shell: Shell):
    """The listing shows the new share; none lifts the cap."""
    tenant = Tenant(shell, "--core", "10")
    resized(shell, tenant.name, "--core", "60")
    assert [share["corePercent"] for share in shell.cards()[0]["slices"]] == [60]
    resized(shell, tenant.name, "--core", "none")
    assert [share["corePercent"] for share in shell.cards()[0]["slices"]] == [0]
    tenant.end()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["1", "--mem", "1Gi"],
            125,
            "there is no run '1'; none of yours is running (see `aliquot cards`, and",
        ),
        (["1"], 2, "say what to change: --mem 4Gi, --core 50, or both"),
        (["1", "--mem", "0"], 2, "0 is no slice"),
        (["1", "--core", "101"], 2, "101 is no percentage"),
        (["1", "--mem", "+2g"], 2, "did you mean +2Gi?"),
        (["1", "--mem", "-0.5"], 2, "did you mean -512Mi?"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    shell: Shell, arguments: list[str], status: int, words: str
):
    """Bad input answers with a sentence."""
    done = resize(shell, *arguments)
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr


def test_a_run_cannot_resize_itself(shell: Shell):
    """Inside a run there is no way to a larger slice."""
    inside = shell.aliquot(
        "run", "--simulate", "--mem", "1Gi", *ALIQUOT, "resize", "--simulate", "1", "--mem", "2Gi"
    )
    assert inside.returncode == 125
    assert "this process is confined to a slice" in inside.stderr


@pytest.mark.slow
def test_growths_at_once_never_add_up_to_more_than_the_card(shell: Shell):
    """Four runs of 2Gi each want 8Gi of the same card at the same moment: one gets it."""
    tenants = [Tenant(shell, "--mem", "2Gi", "--card", "0") for _ in range(4)]
    commands = [
        subprocess.Popen(
            [*ALIQUOT, "resize", "--simulate", tenant.name, "--mem", "8Gi"],
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for tenant in tenants
    ]
    assert sorted(command.wait(60) for command in commands) == [0, 125, 125, 125]
    assert sorted(tenant.ask("total") for tenant in tenants) == ["2048", "2048", "2048", "8192"]
    assert shell.promised() == [14 * GIB, 0]
    for tenant in tenants:
        tenant.end()


SMALL, LARGE = Slice("GPU-a", 2 * GIB, 50), Slice("GPU-a", 7 * GIB, 20)


@pytest.mark.parametrize(("old", "new"), [(SMALL, LARGE), (LARGE, SMALL)], ids=["more", "less"])
def test_a_resize_killed_at_any_line_is_done_or_can_be_done_again(
    tmp_path_factory: pytest.TempPathFactory, old: Slice, new: Slice
):
    """After SIGKILL the record never promises less than the page allows, and doing it again completes it."""
    home = tmp_path_factory.mktemp("home")
    registry = Registry(home)
    with registry.locked():
        name = registry.add(old, ["sleep"]).directory.relative_to(home)
        states = states_during(lambda: resize_the_run(registry, new), home)
    assert len(states) > 3
    for state in states:
        left = restored(state, tmp_path_factory.mktemp("killed"))
        registry, control = Registry(left), left / name / "control"
        with (left / name / "alive").open() as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            with registry.locked():
                promised = registry.runs()[0].slice
                (limit,) = read_control(control).cards
                assert promised.memory_bytes >= limit.memory_bytes
                assert promised.core_percent >= limit.core_percent
                resize_the_run(registry, new)
                promised = registry.runs()[0].slice
            (limit,) = read_control(control).cards
            assert promised == new == Slice(limit.uuid, limit.memory_bytes, limit.core_percent)


def resize_the_run(registry: Registry, wanted: Slice) -> None:
    """The only one that there is."""
    (run,) = registry.runs()
    registry.resize(run, wanted)
