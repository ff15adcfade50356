"""`aliquot run --managed`, as a person types it, on the simulated machine."""

import sys

import pytest

from tests.integration.shells import Shell

MANAGED = """
from cuda.bindings import driver

driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
error, _ = driver.cuMemAllocManaged(3 << 30, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
print(error.name)
"""


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ([], "CUDA_ERROR_OUT_OF_MEMORY"),
        (["--managed", "reserve"], "CUDA_ERROR_OUT_OF_MEMORY"),
        (["--managed", "resident"], "CUDA_SUCCESS"),
    ],
)
def test_managed_memory_may_be_larger_than_a_slice_that_says_so(
    shell: Shell, options: list[str], answer: str
):
    """Three gibibytes in two."""
    command = ("--mem", "2Gi", *options, "--", sys.executable, "-c", MANAGED)
    done = shell.aliquot("run", "--simulate", *command)
    assert done.stdout.strip() == answer
