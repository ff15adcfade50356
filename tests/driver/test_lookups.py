"""Look-ups on NVIDIA's own libraries: hooks where the driver has the function, its own answers elsewhere."""

import pytest

from tests.driver.flavours import BARE, Ground
from tests.driver.questions import all_names, ask, differences, rows, symbols
from tests.native.forwarded import SONAMES
from tests.native.names import hooked

pytestmark = pytest.mark.driver

CUDA = SONAMES[0]
FLAGS = (0, 1, 2, 3, 4, 1 << 32, (1 << 64) - 1)
ODD_NAMES = ("", " cuInit", "cuInit ", "CUINIT", "cuinit", "cu", "cuNothing", "malloc", "nvmlInit_v2")
ODD_VERSIONS = (-(1 << 31), -12000, -1, 0, 1, 12020, 12021, 12040, 12041, 13050, 99990, (1 << 31) - 1)


@pytest.mark.parametrize("soname", SONAMES)
@pytest.mark.parametrize("scope", ["local", "global", "none"])
def test_every_name_is_found_where_the_driver_has_it_and_nowhere_else(
    ground: Ground, flavour: str, soname: str, scope: str
):
    """By dlsym and dlvsym with any handle, whether the driver is loaded and for whom; the error is set as well."""
    kinds = ["main", "default", "next"] + ([] if scope == "none" else ["dlsym", "plugin"])
    questions = [f"{kind}\t{name}" for kind in kinds for name in all_names(ground.driver, soname)]
    if scope == "local":
        versions = ("NONE", soname, "GLIBC_2.2.5")
        questions += [f"dlvsym\t{n}\t{v}" for n in all_names(ground.driver, soname) for v in versions]
    assert differences(ground, flavour, soname, scope, questions) == []


@pytest.fixture(scope="session")
def procaddr(ground: Ground) -> tuple[list[str], list[str]]:
    """Questions to cuGetProcAddress and cuGetProcAddress_v2, and the driver's answers."""
    sinces = {since for found in rows().values() for since in found}
    versions = sorted({*ODD_VERSIONS, *sinces, *(since - 1 for since in sinces)})
    names = [*rows(), *ODD_NAMES]
    suffixed = [name for name in all_names(ground.driver, CUDA) if name not in rows()]
    pairs = [(name, version) for name in names for version in versions]
    pairs += [(name, version) for name in suffixed for version in (-1, 12020, 13050)]
    questions = [
        f"{entry}\t{name}\t{version}\t{flag}"
        for name, version in pairs
        for flag in FLAGS
        for entry in ("gpa", "gpa1")
    ]
    return questions, ask(ground, BARE, CUDA, "local", questions)


def test_cugetprocaddress_gives_the_hook_of_the_very_function_that_the_driver_gives(
    ground: Ground, flavour: str, procaddr: tuple[list[str], list[str]]
):
    """Every name, version and flag, and some that are none: result, status and function."""
    questions, bare = procaddr
    assert len({answer.split()[0] for answer in bare}) > 1
    assert differences(ground, flavour, CUDA, "local", questions, bare=bare) == []


def test_the_debuggers_variables_and_functions_are_the_drivers_own(ground: Ground, flavour: str):
    """A debugger reads and writes them in the driver's library; no stub stands before them."""
    names = [name for name in ground.driver.exports(CUDA) if name.startswith("cudbg")]
    variables = [name for name in names if not ground.driver.exports(CUDA)[name].is_function]
    assert len(variables) >= 20
    answers = ask(ground, flavour, CUDA, "global", [f"{k}\t{n}" for n in names for k in ("dlsym", "default")])
    assert symbols(ground.driver, CUDA, answers) == [name for name in names for _ in "12"]


def test_what_an_older_driver_lacks_is_found_by_no_way(ground: Ground, flavour: str):
    """Hooks of functions that came later are not given out: the driver says that it has none, and so do we."""
    names = sorted(hooked(CUDA) - set(ground.driver.exports(CUDA)))
    assert {"cuMemcpyBatchAsync", "cuStreamBeginRecaptureToGraph"} <= set(names)
    ways = [f"{kind}\t{name}" for kind in ("dlsym", "main", "default", "next", "plugin") for name in names]
    assert set(ask(ground, flavour, CUDA, "global", ways)) == {"-"}
    later = [name for name, sinces in rows().items() if min(sinces) > 12040]
    unknown = ask(ground, flavour, CUDA, "local", [f"gpa\t{name}\t13050\t0" for name in later])
    assert set(unknown) == {"0 1 -"}
