"""The extender's command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.request.placement_policy import Policy
from aliquot.scheduler_ext.__main__ import main
from aliquot.scheduler_ext.options import parse_arguments

ROOT = Path(__file__).resolve().parents[3]


def test_the_defaults_are_those_of_a_sidecar():
    """On loopback, packing, with no dialect."""
    options = parse_arguments([])
    assert (options.host, options.node_policy, options.dialects) == ("127.0.0.1", Policy.FRAG_AWARE, [])


def test_certificate_and_key_belong_together(capsys: pytest.CaptureFixture[str]):
    """Half a pair is a mistake, not plain HTTP."""
    with pytest.raises(SystemExit):
        parse_arguments(["--tls-cert", "tls.crt"])
    assert "belong together" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_has_no_threads_for_matrices():
    """Numpy would start one for every core; where the environment says how many, it has its way."""
    count = "import os, aliquot.scheduler_ext.app; print(len(os.listdir('/proc/self/task')))"
    bare = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for said, threads in (({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1))):
        command = [sys.executable, "-c", count]
        done = subprocess.run(command, cwd=ROOT, env=bare | said, check=True, capture_output=True, text=True)
        assert int(done.stdout) == threads


REPLICA = ["--leader-elect", "--advertise-url", "https://[::1]:1"]
PAIR = ["--tls-cert", "tls.crt", "--tls-key", "tls.key", "--tls-ca", "ca.crt"]
INCOMPLETE = {
    "--advertise-url https": ["--leader-elect", *PAIR],
    "where the other": ["--leader-elect", "--advertise-url", "http://[::1]:1", *PAIR],
    "--tls-ca": [*REPLICA, *PAIR[:4]],
    "over TLS": REPLICA,
    "at least 5": [*REPLICA, *PAIR, "--lease-seconds", "4"],
}


@pytest.mark.parametrize(("complaint", "flags"), INCOMPLETE.items())
def test_a_replica_needs_tls_and_time(complaint: str, flags: list[str], capsys: pytest.CaptureFixture[str]):
    """Replicas that could not reach each other, or whose leader could never write, do not start."""
    with pytest.raises(SystemExit):
        parse_arguments(flags)
    assert complaint in capsys.readouterr().err


BROKEN = {
    "no kubeconfig": [],
    "no such dialect": ["--dialects", "klingon"],
    "no certificate": ["--tls-cert", "/no/tls.crt", "--tls-key", "/no/tls.key"],
}


@pytest.mark.parametrize("flags", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_work_ends_with_a_line(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """No traceback for a mistake of the admin's."""
    assert main(["--kubeconfig", str(tmp_path / "none"), *flags]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
