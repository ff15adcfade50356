"""What NVIDIA's cuda-bindings (Apache-2.0) say of the driver: its functions, their parameters and their ABI symbols.

The package declares every function in `cydriver.pxd` by its plain name, and names the ABI's symbols in its compiled
loader.
"""

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FUNCTION = re.compile(r"^cdef CUresult (cu\w+)\((.*?)\) except", re.MULTILINE)
POINTER_TYPE = re.compile(r"ctypedef [\w ]+\(\*\s*(\w+)")
ALIAS = re.compile(r"ctypedef ([\w ]+?)\s*(\*?)\s*(\w+)(?: '\w+')?$", re.MULTILINE)
ENUM = re.compile(r"(?:ctypedef|cdef) enum (\w+)")
LOADED = re.compile(rb"_internal\.driver\._(cu\w+)")
VERSION = re.compile(r"_v\d+$")

WIDTHS = {
    **dict.fromkeys(("char", "unsigned char"), "1"),
    "unsigned short": "2",
    **dict.fromkeys(("int", "unsigned int", "unsigned", "uint32_t", "cuuint32_t"), "4"),
    **dict.fromkeys(("size_t", "long long", "unsigned long long", "uint64_t", "cuuint64_t"), "8"),
    "float": "real",
}


@dataclass(frozen=True)
class Function:
    """A function as the package declares it. Parameters are C declarations."""

    name: str
    symbol: str
    parameters: tuple[str, ...]


class Bindings:
    """One release of cuda-bindings."""

    def __init__(self, pxd: str, loader: bytes = b"") -> None:
        """Reads the text of cydriver.pxd and the loader's compiled code."""
        self._symbols = {symbol.decode() for symbol in LOADED.findall(loader)}
        self._types = _types(pxd)
        found = {name: _split(parameters) for name, parameters in FUNCTION.findall(pxd)}
        self.functions = [
            Function(name, self._symbol(name, found), parameters) for name, parameters in found.items()
        ]

    def shapes(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """What each parameter looks like to the caller: `pointer`, `real`, a structure's name, or a width in bytes."""
        return tuple(_shape(parameter, self._types) for parameter in parameters)

    def _symbol(self, name: str, declared: Mapping[str, object]) -> str:
        """The symbol that a declared name is loaded as: itself, a version of it, or one that has no name of its own."""
        if name in self._symbols:
            return name
        nameless = self._symbols - declared.keys()
        versions = [symbol for symbol in nameless if plain(symbol) == name]
        longer = [symbol for symbol in nameless if symbol.startswith(name) and plain(symbol) not in declared]
        return max(versions or longer, default=name)


def read_wheel(wheel: Path) -> Bindings:
    """Reads a downloaded wheel without installing it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        pxd = archive.read("cuda/bindings/cydriver.pxd").decode()
        loaders = [
            name for name in names if re.search(r"_(internal|bindings)/\w*driver\.[\w-]+\.(so|pyd)$", name)
        ]
        return Bindings(pxd, b"".join(archive.read(name) for name in loaders))


def read_installed(package: Path) -> Bindings:
    """Reads an installed package, given its folder (`cuda/bindings`)."""
    loaders = sorted((package / "_internal").glob("driver.*"))
    return Bindings((package / "cydriver.pxd").read_text(), b"".join(path.read_bytes() for path in loaders))


def plain(name: str) -> str:
    """A name without its version."""
    return VERSION.sub("", name)


def shapes_of_row(parameters: str, bindings: Bindings) -> tuple[str, ...]:
    """The same for the parameters of a hook's row."""
    return bindings.shapes(_split(parameters.strip("()")))


def _split(parameters: str) -> tuple[str, ...]:
    parts = [part.strip() for part in parameters.split(",")]
    return tuple(part for part in parts if part not in {"", "void"})


def _types(pxd: str) -> dict[str, str]:
    """Every typedef's shape, or the type that it stands for."""
    types = {**WIDTHS, "CUdeviceptr_v1": "4"}
    types |= {name: f"{target}{star}" for target, star, name in ALIAS.findall(pxd)}
    types |= dict.fromkeys(POINTER_TYPE.findall(pxd), "pointer")
    return types | dict.fromkeys(ENUM.findall(pxd), "4")


def _shape(parameter: str, types: Mapping[str, str]) -> str:
    if "*" in parameter or "[" in parameter:
        return "pointer"
    words = parameter.replace("const ", "").split()
    known = [name for name in (" ".join(words[:-1]), " ".join(words)) if name in types]
    shape = known[0] if known else words[0]
    while shape in types:
        shape = types[shape]
    return "pointer" if shape.endswith("*") else shape
