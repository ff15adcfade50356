"""Stands between kubelet and container, as containerd's shim does: the container outlives the kubelet.

`python -I -S shim.py DIRECTORY ATTEMPT` reads `<attempt>.spec.json` (argv, env, cwd), starts the program in a
session of its own, writes `<attempt>.pid` (pid and start time), waits, kills what the program left behind (as
the end of a PID namespace would), and writes `<attempt>.exit`. It imports the standard library
alone, since it starts with every container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
START_ERROR = 128


def _write(path: Path, content: object) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


def _start(spec: dict[str, Any], error: Path) -> int:
    """Fork and execute; in the child this never returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - the container's own program
    except OSError as failure:
        _write(error, f'exec: "{spec["argv"][0]}": {failure.strerror}')
    finally:
        os._exit(START_ERROR)


def _wait_for(pid: int) -> int:
    """Exit code of the program as a shell gives it; orphans that end meanwhile are reaped."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _kill_leftovers(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    """Run one attempt of one container from start to end."""
    directory, attempt = Path(sys.argv[1]), sys.argv[2]
    spec = json.loads((directory / f"{attempt}.spec.json").read_text())
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pid = _start(spec, directory / f"{attempt}.error")
    _write(directory / f"{attempt}.pid", {"pid": pid, "shim": os.getpid(), "started": time.time()})
    code = _wait_for(pid)
    _kill_leftovers(pid)
    _write(directory / f"{attempt}.exit", {"code": code, "finished": time.time()})


if __name__ == "__main__":
    main()
