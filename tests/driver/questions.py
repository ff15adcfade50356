"""What tests/driver/lookups.c is asked, and what its answers must be, given those that it gets without us."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from tests.driver.drivers import Driver
from tests.driver.flavours import BARE, Ground
from tests.driver.programs import plugin, program
from tests.native.names import LIBSHIM, PREFIX, hooked, known, listed

_ROW = re.compile(r"AQ_(?:HOOK|PASSED)\((\w+), (\w+), (\d+), \w+,")
IN_DRIVER = "driver+"


def all_names(driver: Driver, soname: str) -> list[str]:
    """Every name that the library exports, that we list or hook, or that NVIDIA's Python packages know."""
    ours = {name for name in known() if name.startswith(PREFIX[soname])}
    return sorted({*driver.exports(soname), *listed(soname), *hooked(soname), *ours})


@cache
def rows() -> dict[str, list[int]]:
    """What cuGetProcAddress calls a function -> the versions at which our table has it change its ABI."""
    text = "".join(path.read_text() for path in (LIBSHIM / "src" / "hooks").glob("*.def"))
    found: dict[str, list[int]] = {}
    for symbol, name, since in _ROW.findall(text):
        if symbol.startswith("cu"):
            found.setdefault(name, []).append(int(since))
    return found


@cache
def places(driver: Driver, soname: str) -> dict[str, str]:
    """A place in the library, as answers have it -> the name that lies there; no two names share a place."""
    found = {f"{IN_DRIVER}{place.offset:x}": name for name, place in driver.exports(soname).items()}
    assert len(found) == len(driver.exports(soname))
    return found


def symbols(driver: Driver, soname: str, answers: Iterable[str]) -> list[str]:
    """The name of the driver's function (or variable) in each answer; empty where there is none."""
    known_places = places(driver, soname)
    return [known_places.get(answer.rpartition(" ")[2], "") for answer in answers]


def expected(driver: Driver, soname: str, bare: Sequence[str]) -> list[str]:
    """The answers in a slice: a hook where there is one for that very function, else what they are without us."""
    hooks = hooked(soname)
    return [
        "".join((*answer.rpartition(" ")[:2], f"hook {symbol}")) if symbol in hooks else answer
        for answer, symbol in zip(bare, symbols(driver, soname, bare), strict=True)
    ]


def ask(ground: Ground, flavour: str, soname: str, scope: str, questions: Sequence[str]) -> list[str]:
    """The answers; where one lies behind a forwarder's stub, it says nothing of the stub."""
    driver = ground.driver
    files = (driver.file(soname), ground.forwarder(soname), plugin(driver.libraries / soname))
    command = [str(program("lookups", "places")), soname, *map(str, files), scope]
    return [answer.replace("~", "") for answer in ground.lines(flavour, command, questions)]


def differences(
    ground: Ground,
    flavour: str,
    soname: str,
    scope: str,
    questions: Sequence[str],
    *,
    bare: Iterable[str] = (),
) -> list[tuple[str, str, str]]:
    """Questions whose answers in a slice are not what they must be: question, wanted, given."""
    without = list(bare) or ask(ground, BARE, soname, scope, questions)
    ours = ask(ground, flavour, soname, scope, questions)
    wanted = expected(ground.driver, soname, without)
    found = zip(questions, wanted, ours, strict=True)
    return [(question, must, given) for question, must, given in found if must != given]
