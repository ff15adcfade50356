"""What the interceptor adds to a call, a launch, a look-up and the start of a process.

Prints one JSON object a line; those with a `bound` say whether it was `met`. Times are medians of several processes,
run in turn with and without the interceptor, so that a busy moment of this machine is nobody's alone; the added
nanoseconds are against a driver that answers at once (`native/instant.c`). Contention is measured on the
simulated driver, whose launches have locks of their own, as a real driver's have.

Instructions are counted by callgrind, where valgrind is installed. Arguments: the figures wanted (`launch`, `alloc`,
`meminfo`, `dlsym`, `lookup`, `start`; `launch_instructions`: without the times); none: all.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import forwarder_path, library_path
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine

HERE = Path(__file__).resolve().parent
KERNEL = HERE.parent / "sandbox" / "kernels" / "spin.ptx"
INSTANT_UUID = "GPU-11111111-1111-1111-1111-111111111111"
GIB = 1 << 30
PROCESSES = 7
BATCH, ROUNDS = 2000, 500
SIMULATED_BATCH, SIMULATED_ROUNDS = 200, 200
COUNTED_ROUNDS = (20, 60)
STARTS = 200

LAUNCHES = (
    "linked",
    "gpa",
    "stream",
    "2_streams",
    "4_streams",
    "ptsz",
    "ex",
    "ex_ptsz",
    "cooperative",
    "cooperative_ptsz",
    "graph",
    "graph_ptsz",
)
LAUNCH_NS, LAUNCH_INSTRUCTIONS, CONTENDED = 5.0, 25.0, 1.3
FORWARDER_NS = 1.0

Environment = Mapping[str, str]
Command = list[str | Path]


@dataclass(frozen=True)
class Bench:
    """The measuring program, and the environments it runs in: by driver, then by kind of tenant."""

    program: Path
    instant: Mapping[str, Environment]
    simulated: Mapping[str, Environment]


def report(name: str, value: float, unit: str, bound: float | None = None) -> None:
    """Prints one figure."""
    figure: dict[str, object] = {"name": name, "value": round(value, 2), "unit": unit, "better": "lower"}
    if bound is not None:
        figure |= {"bound": bound, "met": value <= bound}
    print(json.dumps(figure), flush=True)


# ---- setting up ----


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Builds one of the native programs."""
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", target, *arguments, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return target


def tenants(directory: Path, uuid: str, bare: Environment) -> dict[str, Environment]:
    """Bare, and with the interceptor: without a slice, with one, with a share of time that is never used up."""
    kinds: dict[str, Environment] = {"bare": bare, "no_slice": {**bare, "LD_PRELOAD": str(library_path())}}
    for kind, percent in (("uncapped", 0), ("capped", 99)):
        pages = directory / kind
        pages.mkdir(parents=True)
        limit = CardLimit(uuid, 8 * GIB, percent)
        create_control(pages / "control", Control(f"bench/shim/{kind}", (limit,)))
        create_usage(pages / "usage")
        kinds[kind] = {
            **kinds["no_slice"],
            "ALIQUOT_CONTROL_PAGE": str(pages / "control"),
            "ALIQUOT_USAGE_PAGE": str(pages / "usage"),
        }
    return kinds


@contextlib.contextmanager
def prepared() -> Iterator[Bench]:
    """Builds everything in a directory that goes afterwards."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        machine = SimMachine(root / "machine", [SimCard()])
        machine.create()
        shared = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")
        driver = compile_c(root / "libcuda.so.1", *shared, HERE / "native" / "instant.c")
        program = compile_c(root / "calls", HERE / "native" / "calls.c", driver)
        link_forwarder(root / "forwarded", driver)
        instant = {**os.environ, "LD_LIBRARY_PATH": str(root)}
        simulated = {**os.environ, **machine.env(), "KERNEL": str(KERNEL)}
        yield Bench(
            program,
            tenants(root / "instant", INSTANT_UUID, instant),
            tenants(root / "simulated", machine.cards[0].uuid, simulated),
        )


def link_forwarder(directory: Path, driver: Path) -> None:
    """What a container with forwarders finds."""
    directory.mkdir()
    (directory / "libaliquot.so").symlink_to(library_path())
    (directory / "libcuda.so.1").symlink_to(forwarder_path("libcuda.so.1"))
    (directory / "libcuda-real.so.1").symlink_to(driver)


# ---- measuring ----


def started(command: Command, environment: Environment) -> subprocess.Popen[str]:
    """A process that has made ready and waits to be let go."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def times(commands: Sequence[Command], environment: Environment) -> list[float]:
    """Nanoseconds a call, of each of several processes that are let go together."""
    processes = [started(command, environment) for command in commands]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [float(process.communicate()[0]) for process in processes]


def medians(
    kinds: Mapping[str, Environment], names: Sequence[str], commands: Sequence[Command]
) -> dict[str, float]:
    """By kind, the median of PROCESSES runs; of several processes together the slowest counts."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(PROCESSES):
        for name in names:
            found[name].append(max(times(commands, kinds[name])))
    return {name: statistics.median(values) for name, values in found.items()}


def instructions(program: Path, environment: Environment, case: str) -> float:
    """Instructions a call in the calling thread: what more rounds cost, so that the start costs nothing.

    The threads of a counted program run one at a time: without pauses nothing is ever seen to be over, and each batch
    of work needs new events.
    """
    totals = []
    paused = {**environment, "PAUSE_US": "10000"}
    with tempfile.TemporaryDirectory() as scratch:
        for rounds in COUNTED_ROUNDS:
            out = Path(scratch) / f"out.{rounds}"
            valgrind = [
                "valgrind",
                "-q",
                "--tool=callgrind",
                "--separate-threads=yes",
                f"--callgrind-out-file={out}",
            ]
            command: Command = [*valgrind, program, case, str(BATCH), str(rounds)]
            subprocess.run(command, env=paused, input="go\n", text=True, capture_output=True, check=True)
            totals.append(main_thread_total(out))
    return (totals[1] - totals[0]) / (BATCH * (COUNTED_ROUNDS[1] - COUNTED_ROUNDS[0]))


def main_thread_total(out: Path) -> int:
    """The instructions of the first thread, from callgrind's file of it."""
    with out.with_name(f"{out.name}-01").open() as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(("totals:", "summary:")))


def report_calls(
    bench: Bench, case: str, kind: str, bound: float | None, count_bound: float | None = None
) -> None:
    """What one process adds to one kind of call."""
    command: Command = [bench.program, case, str(BATCH), str(ROUNDS), "0"]
    found = medians(bench.instant, ("bare", kind), [command])
    report(f"{case}.{kind}.bare", found["bare"], "ns")
    report(f"{case}.{kind}.added", found[kind] - found["bare"], "ns", bound)
    if shutil.which("valgrind"):
        report_instructions(bench, case, kind, count_bound)


def report_instructions(bench: Bench, case: str, kind: str, bound: float | None) -> None:
    """The instructions added to one kind of call."""
    bare, guarded = (instructions(bench.program, bench.instant[name], case) for name in ("bare", kind))
    report(f"{case}.{kind}.added_instructions", guarded - bare, "instructions", bound)


# ---- the figures ----


LAUNCH_KINDS = (*((flavour, "capped") for flavour in LAUNCHES), ("gpa", "no_slice"), ("gpa", "uncapped"))


def launches(bench: Bench) -> None:
    """Every flavour of launch with a core limit on, and one of them without."""
    for flavour, kind in LAUNCH_KINDS:
        report_calls(bench, f"launch.{flavour}", kind, LAUNCH_NS, LAUNCH_INSTRUCTIONS)
    report_calls(bench, "launch.and_wait", "capped", None)


def launch_instructions(bench: Bench) -> None:
    """Of the same, what no busy moment of this machine can disturb."""
    for flavour, kind in LAUNCH_KINDS:
        report_instructions(bench, f"launch.{flavour}", kind, LAUNCH_INSTRUCTIONS)


def contended_launches(bench: Bench) -> None:
    """Two threads, and two processes, each on a processor of its own."""
    one: Command = [bench.program, "launch.stream", str(SIMULATED_BATCH), str(SIMULATED_ROUNDS)]
    kinds = ("bare", "capped")
    for name, commands in (
        ("launch.2_threads", [[*one, "0", "1"]]),
        ("launch.2_processes", [[*one, "0"], [*one, "1"]]),
    ):
        found = medians(bench.simulated, kinds, commands)
        report(f"{name}.bare", found["bare"], "ns")
        report(f"{name}.capped", found["capped"], "ns")
        report(f"{name}.capped_to_bare", found["capped"] / found["bare"], "ratio", CONTENDED)


def forwarded_launches(bench: Bench) -> None:
    """What the forwarder adds to the preloaded interceptor: a launch by way of its stub, and nothing else."""
    preloaded = bench.instant["uncapped"]
    libraries = str(bench.program.with_name("forwarded"))
    kinds = {
        "preloaded": preloaded,
        "forwarded": {**preloaded, "LD_PRELOAD": "", "LD_LIBRARY_PATH": libraries},
    }
    command: Command = [bench.program, "launch.linked", str(BATCH), str(ROUNDS), "0"]
    found = medians(kinds, tuple(kinds), [command])
    report("launch.linked.forwarder.added", found["forwarded"] - found["preloaded"], "ns", FORWARDER_NS)
    if shutil.which("valgrind"):
        counts = [instructions(bench.program, env, "launch.linked") for env in kinds.values()]
        report("launch.linked.forwarder.added_instructions", counts[1] - counts[0], "instructions", 3.0)


def allocations(bench: Bench) -> None:
    """Alloc + free with few and many blocks live, and by two processes of one container."""
    report_calls(bench, "alloc.1", "uncapped", 90.0)
    report_calls(bench, "alloc.10000", "uncapped", 100.0)
    one: Command = [bench.program, "alloc.1", str(BATCH), str(ROUNDS)]
    alone = medians(bench.instant, ("uncapped",), [[*one, "0"]])["uncapped"]
    pair = medians(bench.instant, ("uncapped",), [[*one, "0"], [*one, "1"]])["uncapped"]
    report("alloc.2_processes.to_one", pair / alone, "ratio", CONTENDED)


def memory_info(bench: Bench) -> None:
    """What is free, asked by a process alone and beside one that holds memory."""
    report_calls(bench, "meminfo", "uncapped", 15.0)
    holder = started([bench.program, "alloc.1", "1", "1"], bench.instant["uncapped"])
    command: Command = [bench.program, "meminfo", str(BATCH), str(ROUNDS), "0"]
    found = medians(bench.instant, ("bare", "uncapped"), [command])
    holder.communicate("go\n")
    report("meminfo.beside_another.added", found["uncapped"] - found["bare"], "ns")


def start_us(environment: Environment) -> float:
    """Microseconds from start to end of a program that does nothing."""
    began = time.perf_counter_ns()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], environment), 0)
    return (time.perf_counter_ns() - began) / 1000


def starts(bench: Bench) -> None:
    """The start of a process that never touches CUDA."""
    found: dict[str, list[float]] = {"bare": [], "uncapped": []}
    for _ in range(STARTS):
        for kind, values in found.items():
            values.append(start_us(bench.instant[kind]))
    bare, guarded = (statistics.median(values) for values in found.values())
    report("start.bare", bare, "us")
    report("start.added", guarded - bare, "us", 50.0)


def main() -> None:
    """Measures what was asked for."""
    groups = {
        "launch": (launches, contended_launches, forwarded_launches),
        "alloc": (allocations,),
        "meminfo": (memory_info,),
        "dlsym": (lambda bench: report_calls(bench, "dlsym", "uncapped", 3.0),),
        "lookup": (lambda bench: report_calls(bench, "lookup", "uncapped", 100.0),),
        "start": (starts,),
    }
    parts = {
        **groups,
        "launch_instructions": (launch_instructions,),
        "launch_forwarded": (forwarded_launches,),
    }
    with prepared() as bench:
        for name in sys.argv[1:] or groups:
            for figures in parts[name]:
                figures(bench)


if __name__ == "__main__":
    main()
