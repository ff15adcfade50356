"""`aliquot run` and `aliquot cards`, as a person starts them, on the simulated machine."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from aliquot.cli.options import words_of
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.shells import ALIQUOT, WAIT_S, Shell, until

ROOT = Path(__file__).parents[2]
GIB = 1 << 30

TENANT = """
from cuda.bindings import driver
from cuda.core import Device

device = Device()
device.set_current()
stream = device.create_stream()
total = driver.cuMemGetInfo()[2]
kept = device.allocate(total // 2, stream=stream)
try:
    device.allocate(total, stream=stream)
except Exception as error:
    denied = str(error)
print(device.uuid, total, "OUT_OF_MEMORY" in denied)
"""

HOLD = """
import os, sys
from cuda.core import Device

device = Device()
device.set_current()
kept = device.allocate(1 << 20, stream=device.create_stream())
print(os.getpid(), flush=True)
sys.stdin.read()
"""

READY_THEN_WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


def line(stream: IO[str] | None) -> str:
    """The next line of a process's output."""
    assert stream is not None
    return stream.readline().strip()


def test_a_cuda_program_sees_and_gets_its_slice(shell: Shell):
    """Half of the slice can be allocated, the slice again cannot, and the card is as large as the slice."""
    card = str(shell.cards()[1]["uuid"])
    done = shell.aliquot(
        "run", "--simulate", "--mem", "2Gi", "--card", "1", "--", sys.executable, "-c", TENANT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [card.removeprefix("GPU-"), str(2 * GIB), "True"]


def test_the_readmes_command_prints_what_the_readme_says(shell: Shell):
    """The first command that a newcomer copies."""
    readme = (ROOT / "README.md").read_text()
    command, *expected = readme.partition("$ .venv/bin/aliquot run ")[2].partition("\n```")[0].splitlines()
    arguments = [sys.executable if word == ".venv/bin/python" else word for word in command.split()]
    done = subprocess.run(
        [*ALIQUOT, "run", *arguments],
        cwd=ROOT,
        env={**shell.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    told = re.sub(r"\b(run|resize) \w{4}\b", r"\1 kx7f", done.stdout)
    assert told.splitlines() == expected


def test_a_program_does_not_wait_for_what_a_run_has_no_use_for(shell: Shell):
    """Importing NumPy, gRPC or an HTTP client would take longer than all that a run does before its program starts."""
    shell.environment["PYTHONPROFILEIMPORTTIME"] = "1"
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "true")
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "aliquot.libshim" in imported
    assert not imported & {"numpy", "grpc", "aiohttp", "kubernetes", "rich", "prometheus_client", "yaml"}


def test_options_after_the_command_are_the_commands(shell: Shell):
    """Nothing behind the command's name is read by aliquot, with or without --."""
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "echo", "--mem", "x")
    assert (done.returncode, done.stdout) == (0, "--mem x\n")


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 128 + 15), ("kill -KILL $$", 128 + 9)],
)
def test_the_exit_status_is_the_commands(shell: Shell, script: str, status: int):
    """A shell cannot tell the command's end from one without aliquot; afterwards nothing is left."""
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "--", "sh", "-c", script)
    assert done.returncode == status
    assert shell.run_directories() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command_once(shell: Shell, number: signal.Signals):
    """What is sent to aliquot is sent on, and the command decides what it means."""
    script = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(number)}}})
print("ready", flush=True)
print(signal.sigwait({{{int(number)}}}) == {int(number)}, signal.sigpending(), flush=True)
"""
    with shell.start("--mem", "1Gi", "--", sys.executable, "-c", script) as process:
        assert line(process.stdout) == "ready"
        process.send_signal(number)
        assert line(process.stdout) == "True set()"
        assert process.wait(WAIT_S) == 0


def test_the_command_has_our_library_before_its_own(shell: Shell):
    """LD_PRELOAD of the caller stays, behind ours."""
    shell.environment["LD_PRELOAD"] = "libc.so.6"
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "--", "sh", "-c", "echo $LD_PRELOAD")
    assert re.fullmatch(r"/\S*/libaliquot\.so:libc\.so\.6\n", done.stdout)


def test_runs_that_last_at_the_same_time_share_a_card(shell: Shell):
    """Slices gather on one card; each run has its own."""
    wait = ("--", sys.executable, "-c", READY_THEN_WAIT)
    with (
        shell.start("--mem", "6Gi", "--core", "30", *wait) as first,
        shell.start("--mem", "4Gi", *wait) as second,
    ):
        assert [line(first.stdout), line(second.stdout)] == ["ready", "ready"]
        card, other = shell.cards()
        slices = [(share["memoryBytes"], share["corePercent"]) for share in card["slices"]]  # type: ignore[attr-defined]
        assert sorted(slices) == [(4 * GIB, 0), (6 * GIB, 30)]
        assert other["slices"] == []
        table = shell.aliquot("cards", "--simulate").stdout
        assert "10Gi of 16Gi" in table
        for process in (first, second):
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
    assert shell.promised() == [0, 0]


def test_more_than_what_is_left_is_refused(shell: Shell):
    """The refusal says what is left where; the slice that fits still gets it."""
    with shell.start("--mem", "15Gi", "--card", "0", "--", sys.executable, "-c", READY_THEN_WAIT) as holder:
        assert line(holder.stdout) == "ready"
        refused = shell.aliquot("run", "--simulate", "--mem", "2Gi", "--card", "0", "--", "true")
        assert refused.returncode == 125
        assert "has 1Gi of 16Gi" in refused.stderr
        assert shell.aliquot("run", "--simulate", "--mem", "1Gi", "--card", "0", "--", "true").returncode == 0
        holder.communicate(timeout=WAIT_S)


def test_runs_that_start_at_once_never_get_more_than_the_cards_have(shell: Shell):
    """Of twelve runs that each want 5Gi, six fit two cards of 16Gi; the others are refused."""
    shell.cards()
    wait = ("--mem", "5Gi", "--", sys.executable, "-c", READY_THEN_WAIT)
    runs = [shell.start(*wait) for _ in range(12)]
    until(lambda: sum(run.poll() is not None for run in runs) >= 6)
    living = [run for run in runs if run.poll() is None]
    assert len(living) == 6
    assert {line(run.stdout) for run in living} == {"ready"}
    assert shell.promised() == [15 * GIB, 15 * GIB]
    statuses = {run.communicate(timeout=WAIT_S) and run.returncode for run in runs}
    assert statuses == {0, 125}


def test_a_killed_run_keeps_its_slice_while_its_command_lives(shell: Shell):
    """After SIGKILL of aliquot the command keeps its slice; when it ends, the next aliquot cleans up."""
    script = f"import os; print(os.getpid(), flush=True); {READY_THEN_WAIT}"
    run = shell.start("--mem", "6Gi", "--card", "0", "--", sys.executable, "-c", script)
    pid = int(line(run.stdout))
    assert line(run.stdout) == "ready"
    run.kill()
    run.wait(WAIT_S)
    assert shell.promised() == [6 * GIB, 0]
    assert Path(f"/proc/{pid}").exists()
    run.communicate(timeout=WAIT_S)
    until(lambda: shell.promised() == [0, 0])
    assert shell.run_directories() == []


def test_what_the_command_leaves_behind_keeps_the_slice(shell: Shell):
    """A background process that outlives the command still has the slice, until it ends."""
    run = shell.start("--mem", "6Gi", "--card", "0", "--", "sh", "-c", "exec 3<&0; cat <&3 >&2 &")
    assert run.wait(WAIT_S) == 0
    assert shell.promised() == [6 * GIB, 0]
    run.communicate(timeout=WAIT_S)
    until(lambda: shell.promised() == [0, 0])


REFUSED = [
    (["--mem", "2Gi"], 2, "no command to run"),
    (["--", "true"], 2, "say how much"),
    (["--mem", "4096", "--", "true"], 2, "did you mean 4096Mi?"),
    (["--mem", "2g", "--", "true"], 2, "did you mean 2Gi?"),
    (["--mem", "2GiB", "--", "true"], 2, "did you mean 2Gi?"),
    (["--mem", "0.5", "--", "true"], 2, "did you mean 512Mi?"),
    (["--mem", "101%", "--", "true"], 2, "from 1 to 100"),
    (["--mem", "-1", "--", "true"], 2, "negative"),
    (["--mem", "0", "--", "true"], 2, "0 is no slice"),
    (["--core", "101", "--", "true"], 2, "from 1 to 100"),
    (["--core", "0", "--", "true"], 2, "from 1 to 100"),
    (
        ["--core", "30", "--mode", "Burst", "--", "true"],
        2,
        "'Burst' is not one of 'capped', 'burst', 'uncapped'",
    ),
    (["--mem", "1Gi", "--mode", "burst", "--", "true"], 2, "ask for --core too"),
    (["--core", "30", "--mode", "uncapped", "--", "true"], 2, "uncapped goes without a share"),
    (["--mem", "1Gi", "--core-limit", "60", "--", "true"], 2, "none is asked for by --core"),
    (["--core", "30", "--core-limit", "30", "--", "true"], 2, "30 is no more than the share, 30"),
    (
        ["--core", "30", "--mode", "capped", "--core-limit", "60", "--", "true"],
        2,
        "never has more than its share",
    ),
    (["--core", "30", "--priority", "10", "--", "true"], 2, "10 is not in the range 0<=x<=9"),
    (["--mem", "17Gi", "--", "true"], 125, "has 16Gi of 16Gi"),
    (["--mem", "1Gi", "--card", "9", "--", "true"], 125, "there is no card '9'"),
    (["--mem", "1Gi", "--", "no-such-program"], 127, "no-such-program: no such command"),
    (["--mem", "1Gi", "--", "/etc/passwd"], 126, "Permission denied"),
    (["--mem", "1Gi", "--", ""], 126, "aliquot run: ''"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_cannot_be_done_is_refused_with_a_reason(
    shell: Shell, arguments: list[str], status: int, words: str
):
    """Bad input answers with a sentence and leaves nothing behind."""
    done = shell.aliquot("run", "--simulate", *arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert shell.run_directories() == []


def test_a_script_without_its_interpreter_is_not_called_missing(shell: Shell, tmp_path: Path):
    """The script is there; what its first line names is not."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "--", str(script))
    assert done.returncode == 126
    assert done.stderr.splitlines()[-1] == f"aliquot run: {script}: its interpreter is missing"


def test_the_exit_status_is_seen_where_sigchld_is_ignored(shell: Shell):
    """A parent that ignores SIGCHLD, and so makes its children ignore it, neither hangs nor fools us."""
    command = [*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--", "sh", "-c", "exit 3"]
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    parent = ignoring + "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", parent, *command], env=shell.environment, timeout=WAIT_S, check=False
    )
    assert done.returncode == 3


def test_cards_shows_any_command_on_one_line(shell: Shell):
    """Brackets, line ends and escape sequences of a command are text; lines are not folded for a file."""
    odd = f"{READY_THEN_WAIT}\n# [/red] [bold] \x1b[2J" + "x" * 200
    with shell.start("--mem", "1Gi", "--card", "0", "--", sys.executable, "-c", odd) as run:
        assert line(run.stdout) == "ready"
        done = shell.aliquot("cards", "--simulate")
        run.communicate(timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[3]
    assert row.split()[1] == str(run.pid)
    assert "[/red] [bold]" in row
    assert row.endswith("x'")
    assert "\x1b" not in done.stdout


def test_arguments_in_another_encoding_reach_the_command_as_they_are(shell: Shell):
    """A file's name, for example, that is no UTF-8."""
    with shell.start("--mem", "1Gi", "--", "sh", "-c", 'printf %s "$0" | od -An -tx1', "\udcff") as run:
        out, _ = run.communicate(timeout=WAIT_S)
    assert (run.returncode, out.strip()) == (0, "ff")


HELD = [
    (["--core", "30"], "30 %", ("capped", 30, 0)),
    (["--core", "30", "--mode", "burst", "--priority", "7"], "30 to 100 %", ("burst", 100, 7)),
    (["--core", "30", "--core-limit", "60"], "30 to 60 %", ("burst", 60, 0)),
    (["--mode", "uncapped"], "uncapped", ("uncapped", 100, 0)),
]


@pytest.mark.parametrize(("options", "words", "terms"), HELD, ids=[" ".join(row[0]) for row in HELD])
def test_cards_shows_how_a_runs_time_is_held(
    shell: Shell, options: list[str], words: str, terms: tuple[str, int, int]
):
    """As it was asked, and what that comes to."""
    with shell.start("--mem", "1Gi", *options, "--", sys.executable, "-c", READY_THEN_WAIT) as run:
        assert line(run.stdout) == "ready"
        (share,) = shell.cards()[0]["slices"]  # type: ignore[misc]
        table = shell.aliquot("cards", "--simulate").stdout
        run.communicate(timeout=WAIT_S)
    assert (share["coreMode"], share["coreMostPercent"], share["priority"]) == terms
    assert f"  {words}  " in table


def test_cards_names_who_holds_the_slice_of_a_killed_run(shell: Shell):
    """When `aliquot run` is gone, no pid of it is shown that could be somebody else's by now."""
    run = shell.start("--mem", "1Gi", "--card", "0", "--", sys.executable, "-c", HOLD)
    pid = int(line(run.stdout))
    run.kill()
    run.wait(WAIT_S)
    (share,) = shell.cards()[0]["slices"]  # type: ignore[misc]
    assert (share["pid"], share["processes"]) == (None, [pid])
    run.communicate(timeout=WAIT_S)


def test_a_killed_run_that_uses_no_card_is_known_by_its_processes(shell: Shell):
    """The same in both tables, and the pid that they show is one to resize it by."""
    run = shell.start("--mem", "1Gi", "--card", "0", "--", "sh", "-c", "echo $$; read x")
    pid = line(run.stdout)
    run.kill()
    run.wait(WAIT_S)
    (name,) = shell.run_directories()
    assert f"    {name}  {pid} " in shell.aliquot("cards", "--simulate").stdout
    assert f"  {name}  {pid} " in shell.aliquot("top", "--simulate", "--once", "--interval", "0.1").stdout
    done = shell.aliquot("resize", pid, "--mem", "2Gi")
    assert done.stdout == f"run {name}: 2Gi, uncapped (was 1Gi, uncapped)\n"
    run.communicate(timeout=WAIT_S)


@pytest.mark.parametrize("blocked", ["aliquot/simulated", "aliquot/simulated/runs"])
def test_files_that_cannot_be_made_are_named(shell: Shell, blocked: str):
    """Whatever stands in the way is named in one sentence; there is no traceback."""
    path = shell.runtime / blocked
    path.parent.mkdir(parents=True, mode=0o700)
    path.touch()
    done = shell.aliquot("cards", "--simulate")
    assert done.returncode == 125
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lost_card_does_not_hide_the_others(shell: Shell, tmp_path: Path):
    """A card that fell off the bus is named and left out; slices of the others can be had."""
    machine = SimMachine(tmp_path / "machine", [SimCard(lost=True), SimCard()])
    machine.create()
    shell.environment |= machine.env()
    done = shell.aliquot("run", "--mem", "1Gi", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (done.returncode, done.stdout.strip()) == (0, machine.cards[1].uuid)
    assert "card 0 is left out: GPU is lost" in done.stderr


def test_a_slice_cannot_be_sliced_again(shell: Shell):
    """Inside a run there is no way to a larger slice, and no card that is larger than the slice is shown."""
    for inner in (["run", "--simulate", "--mem", "1Gi", "--", "true"], ["cards", "--simulate"]):
        done = shell.aliquot("run", "--simulate", "--mem", "1Gi", "--", *ALIQUOT, *inner)
        assert (done.returncode, done.stdout) == (125, "")
        assert "confined to a slice already" in done.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_a_driver_the_remedy_is_named(shell: Shell):
    """On a machine with no NVIDIA driver both commands say so."""
    for arguments in (["cards"], ["run", "--mem", "1Gi", "--", "true"]):
        done = shell.aliquot(*arguments)
        assert done.returncode == 125
        assert "no NVIDIA driver" in done.stderr
        assert "--simulate" in done.stderr


def test_a_directory_of_somebody_else_is_not_used(shell: Shell, tmp_path: Path):
    """A link where our directory should be is refused, not followed."""
    (tmp_path / "elsewhere").mkdir()
    (shell.runtime / "aliquot").symlink_to(tmp_path / "elsewhere")
    done = shell.aliquot("cards", "--simulate")
    assert done.returncode == 125
    assert "belongs to somebody else" in done.stderr


def test_a_full_directory_is_named_with_what_helps(shell: Shell, tmp_path: Path):
    """On a file system without room, as /dev/shm of a container often is; a page is larger than a file may be here."""
    shell.cards()
    limited = [
        "sh",
        "-c",
        'ulimit -f 8; exec "$@"',
        "sh",
        *ALIQUOT,
        "run",
        "--simulate",
        "--mem",
        "1Gi",
        "true",
    ]
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", ignoring, *limited],
        env=shell.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125, done.stderr
    assert f"cannot keep the record of runs: {shell.runtime}/aliquot/simulated: File too large" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("command", "status"), [("true", 0), ("no-such-command", 127)])
def test_a_command_starts_where_nothing_can_be_said(shell: Shell, command: str, status: int, unbuffered: str):
    """Standard error is a file on a full disk."""
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    run = [*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--", command]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(run, env=shell.environment, stderr=full, timeout=WAIT_S, check=False)
    assert done.returncode == status


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [["cards", "--simulate"], ["top", "--simulate", "--once", "--json"]])
def test_a_table_that_cannot_be_written_is_told(shell: Shell, command: list[str], unbuffered: str):
    """Standard output is a file on a full disk: a sentence, no traceback."""
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ALIQUOT, *command],
            env=shell.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    said = "aliquot: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


PRINTING = [
    ["cards", "--simulate"],
    ["cards", "--simulate", "--json"],
    ["top", "--simulate", "--once"],
    ["top", "--simulate", "--interval", "0.1"],
    ["doctor", "--run", "--simulate"],
    ["run", "--print-library"],
    ["--help"],
    ["--version"],
]


@pytest.mark.parametrize("command", PRINTING, ids=" ".join)
def test_what_is_printed_where_standard_output_is_closed_is_told(shell: Shell, command: list[str]):
    """No traceback, and no success of a command whose only work is to print."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *ALIQUOT, *command]
    done = subprocess.run(
        closed, env=shell.environment, stderr=subprocess.PIPE, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (1, "aliquot: cannot write: Bad file descriptor\n")


def test_errors_are_not_printed_on_standard_output_where_standard_error_is_closed(shell: Shell):
    """Who reads a table must not find a sentence in it."""
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *ALIQUOT, "resize", "x", "--mem", "1Gi"]
    done = subprocess.run(closed, env=shell.environment, stdout=subprocess.PIPE, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (125, b"")


def test_a_simulated_machine_that_cannot_be_made_leaves_no_part_of_it(shell: Shell, tmp_path: Path):
    """Or the directory that was full stays full."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execvp('sh', sys.argv[1:])"
    )
    limited = [sys.executable, "-c", ignoring, "sh", "-c", 'ulimit -f 64; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, *ALIQUOT, "cards", "--simulate"],
        env=shell.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 125, done.stderr
    assert [path.name for path in shell.runtime.rglob(".lib*")] == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
def test_each_failure_of_a_file_has_its_cure(code: int):
    """The directory is named where the error names no file."""
    words = words_of(OSError(code, os.strerror(code)), "keep the record of runs", Path("/runtime"))
    assert words.startswith(f"cannot keep the record of runs: /runtime: {os.strerror(code)}; ")
    assert words.endswith(", or set XDG_RUNTIME_DIR to a directory of yours on another file system")


OPEN_FILES = """
import os, sys
names = []
for descriptor in range(3):
    try:
        names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:
        names.append("closed")
with open(sys.argv[1], "w") as file:
    file.write(" ".join(names))
"""


def test_a_command_without_standard_files_gets_none_of_ours(shell: Shell, tmp_path: Path):
    """As a service manager may start it: the record of the run is not the command's standard output."""
    seen = tmp_path / "seen"
    run = [*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--", sys.executable, "-c", OPEN_FILES, str(seen)]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *run]
    done = subprocess.run(closed, env=shell.environment, timeout=WAIT_S, check=False)
    assert (done.returncode, seen.read_text()) == (0, "closed closed closed")


def test_a_terminal_without_a_character_is_shown_an_escape(shell: Shell):
    """A command of any language has its line in the table, whatever the terminal can show."""
    with shell.start("--mem", "1Gi", "--", "sh", "-c", "echo x; cat #é") as run:
        assert line(run.stdout) == "x"
        shell.environment["PYTHONIOENCODING"] = "ascii"
        done = shell.aliquot("top", "--simulate", "--once", "--interval", "0.1")
        run.communicate("", timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert "sh -c 'echo x; cat #\\xe9'" in done.stdout
