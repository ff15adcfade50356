"""Builds the fuzz targets beside this file and runs them in a slice of a simulated machine.

    python -m tests.fuzz.fuzzing --minutes 30     fuzzes all targets, keeps what is worth it in the corpus

With clang (Debian's, brought into the cache) a target is a libFuzzer program with ASan and UBSan. With any other
compiler it only replays files.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.tools.debian import unpack

HERE = Path(__file__).resolve().parent
LIBSHIM = HERE.parents[1] / "libshim"
CORPUS = HERE / "corpus"
TARGETS = ("calls", "environment", "pages")
SLICE_BYTES = 256 << 20

_FLAGS = (
    "-std=c11",
    "-g",
    "-O1",
    "-D_GNU_SOURCE",
    "-DNDEBUG",
    f"-I{LIBSHIM / 'include'}",
    f"-I{LIBSHIM / 'src'}",
)
_LIBRARIES = ("-ldl", "-lpthread", "-rdynamic")
_LEFT_OUT = {"dlsym.c"}
"""Our dlsym would be the sanitizers' own, before they are ready for it; targets ask the hook table instead."""


def clang() -> tuple[list[str], dict[str, str]]:
    """Returns a clang with libFuzzer, as the start of a command, and the environment that it and its programs need.

    Raises:
        NotAvailableError: it cannot be had here.
    """
    root = unpack("clang-14", "libclang-rt-14-dev", "libllvm14", "libclang-cpp14")
    libraries = [root / "usr/lib/x86_64-linux-gnu", root / "usr/lib/llvm-14/lib"]
    path = ":".join(map(str, libraries))
    return [str(root / "usr/lib/llvm-14/bin/clang")], {"LD_LIBRARY_PATH": path}


class Workshop:
    """Compiles targets, and once for all of them the interceptor that they are linked with."""

    def __init__(
        self, directory: Path, compiler: Sequence[str], environment: Mapping[str, str], *, fuzzer: bool
    ) -> None:
        """`fuzzer`: libFuzzer and sanitizers, which the compiler has to have; else a program that replays files."""
        self._directory, self._compiler, self._environment = directory, compiler, environment
        self._sanitize = ["-fsanitize=fuzzer,address,undefined"] if fuzzer else []
        sources = [file for file in sorted((LIBSHIM / "src").glob("*.c")) if file.name not in _LEFT_OUT]
        sources += [HERE / "slice.c"] if fuzzer else [HERE / "slice.c", HERE / "replay.c"]
        self._common = [self._compile(source) for source in sources]

    def build(self, target: str, into: Path) -> Path:
        """Returns the target's program, in that directory."""
        program = into / target
        own = self._compile(HERE / f"{target}.c")
        command = [*self._compiler, *self._sanitize, "-o", program, own, *self._common, *_LIBRARIES]
        _run(command, self._environment)
        return program

    def _compile(self, source: Path) -> Path:
        compiled = self._directory / f"{source.stem}.o"
        command = [*self._compiler, *_FLAGS, *self._sanitize, "-c", "-o", compiled, source]
        _run(command, self._environment)
        return compiled


def _run(command: Sequence[object], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout)


def environment_of(root: Path) -> dict[str, str]:
    """A machine of one card with a slice for one program."""
    machine = SimMachine(root / "machine", [SimCard(memory_mib=16384)])
    machine.create()
    create_control(root / "control", Control("test/fuzz", (CardLimit(machine.cards[0].uuid, SLICE_BYTES),)))
    create_usage(root / "usage")
    pages = {"ALIQUOT_CONTROL_PAGE": str(root / "control"), "ALIQUOT_USAGE_PAGE": str(root / "usage")}
    return {
        **os.environ,
        **machine.env(),
        **pages,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }


def unpack_corpus(target: str, into: Path) -> list[Path]:
    """Unpacks the inputs kept for a target, one file each; returns them."""
    into.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{target}.zip") as archive:
        archive.extractall(into)
    return sorted(into.iterdir())


def pack_corpus(target: str, directory: Path) -> None:
    """Keeps the inputs of a directory as the target's corpus, the same bytes for the same inputs."""
    with zipfile.ZipFile(CORPUS / f"{target}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(directory.iterdir()):
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)


def replay(target: str, program: Path, root: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a program over the corpus of its target."""
    return _watched([program, *unpack_corpus(target, root / "corpus")], root, timeout)


def _watched(command: Sequence[object], root: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        env=environment_of(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def fuzz(target: str, program: Path, root: Path, seconds: int) -> subprocess.Popen[str]:
    """Starts fuzzing from the corpus on; what is new goes to `root`/corpus, what crashes to `root`."""
    unpack_corpus(target, root / "corpus")
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096", "-max_len=1024"]
    command = [program, *limits, f"-artifact_prefix={root}/{target}-", root / "corpus"]
    return subprocess.Popen(
        command,
        env=environment_of(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def keep(target: str, program: Path, root: Path) -> int:
    """Keeps the fewest inputs of `root`/corpus that reach all that it reaches; returns how many."""
    merged = root / "merged"
    merged.mkdir()
    done = _watched([program, "-merge=1", merged, root / "corpus"], root, 1800)
    if done.returncode:
        raise RuntimeError(done.stdout)
    pack_corpus(target, merged)
    return len(list(merged.iterdir()))


def main() -> int:
    """Fuzzes all targets at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    arguments = parser.parse_args()
    compiler, environment = clang()
    scratch = Path(tempfile.mkdtemp(prefix="aliquot-fuzz-"))
    running = {}
    with tempfile.TemporaryDirectory() as objects:
        workshop = Workshop(Path(objects), compiler, environment, fuzzer=True)
        for target in arguments.targets:
            root = scratch / target
            root.mkdir()
            program = workshop.build(target, root)
            running[target] = program, fuzz(target, program, root, int(arguments.minutes * 60))
    return max(
        [_report(target, program, run, scratch / target) for target, (program, run) in running.items()]
    )


def _report(target: str, program: Path, run: subprocess.Popen[str], root: Path) -> int:
    output, _ = run.communicate()
    lines = output.splitlines()
    if run.returncode:
        print(f"{target}: FOUND SOMETHING; the input and the program are in {root}")
        print("\n".join(lines[-40:]))
        return 1
    print(f"{target}: clean. {lines[-1]}; {keep(target, program, root)} inputs kept")
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
