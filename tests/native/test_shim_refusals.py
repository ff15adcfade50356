"""Whom the interceptor tells of refused memory: the user of a run, and no pod, whatever its namespace is called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.api import names
from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimMachine
from tests.native.tenants import interceptor

GIB = 1 << 30
ALLOCATE = f"""
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(0)[1])
print(cuda.cuMemAlloc({2 * GIB})[0].name)
"""
TOLD = (
    "aliquot: run kx7f: the slice, not the card, refused 2Gi: 1Gi of 1Gi left; "
    "to enlarge it: aliquot resize kx7f --mem +1Gi\n"
)


@pytest.mark.parametrize(
    ("tenant", "told"),
    [
        ("run/kx7f", TOLD),
        ("run/pod/container", ""),
        ("team/pod/container", ""),
        ("run/", ""),
        ("run/longer-than-any-id", ""),
    ],
)
def test_only_a_run_is_told(machine: SimMachine, tmp_path: Path, tenant: str, told: str):
    """A pod's tenant is namespace/pod/container; a run's is run/ID."""
    create_control(tmp_path / "control", Control(tenant, (CardLimit(machine.cards[0].uuid, GIB),)))
    create_usage(tmp_path / "usage")
    environment = {
        **os.environ,
        **machine.env(),
        "LD_PRELOAD": str(interceptor()),
        names.CONTROL_ENV: str(tmp_path / "control"),
        names.USAGE_ENV: str(tmp_path / "usage"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATE], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("CUDA_ERROR_OUT_OF_MEMORY\n", told)
