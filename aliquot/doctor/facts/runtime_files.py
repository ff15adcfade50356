"""The configurations of container runtimes and of NVIDIA's toolkit, read from the host's files."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.node import Runtime, Toolkit

Table = dict[str, Any]

CONTAINERD: Final = Path("/etc/containerd/config.toml")
CRIO: Final = Path("/etc/crio/crio.conf")
CRI_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""The section of CRI in containerd 2 and in 1."""
TOOLKIT: Final = (
    Path("/etc/nvidia-container-runtime/config.toml"),
    Path("/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"),
)
"""Of the package, and of GPU Operator's container."""
BY_ENVIRONMENT: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def on_host(root: Path, path: Path | str) -> Path:
    """A path of the host's, as this process sees it."""
    return root / str(path).lstrip("/")


def read_runtime(proc: Path, root: Path) -> Fact[Runtime]:
    """The configuration of the runtime that runs here: containerd's or CRI-O's."""
    try:
        for command in command_lines(proc):
            program = Path(command[0]).name
            if program == "containerd":
                return Fact.of(_containerd(root, Path(_option(command, "-c", "--config") or CONTAINERD)))
            if program == "crio":
                return Fact.of(_crio(root, Path(_option(command, "-c", "--config") or CRIO)))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Fact.unknown(f"the container runtime's configuration cannot be read from here: {error}")
    return Fact.unknown("neither containerd nor CRI-O is among the processes that are to be seen from here")


def command_lines(proc: Path) -> Iterator[list[str]]:
    """Of all processes that have one."""
    for directory in proc.glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0]:
            yield words


def _option(command: list[str], *names: str) -> str:
    """The value of an option, as its own word or behind `=`."""
    for at, word in enumerate(command):
        if word in names:
            return command[at + 1]
        for name in names:
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
    return ""


def _containerd(root: Path, file: Path) -> Runtime:
    table = _with_imports(root, file)
    plugins = table.get("plugins", {})
    section: Table = {}
    for name in CRI_PLUGINS:
        section = _merged(plugins.get(name, {}), section)
    engine = section.get("containerd", {})
    default = engine.get("default_runtime_name")
    options = engine.get("runtimes", {}).get(default or "runc", {}).get("options", {})
    directories = section.get("cdi_spec_dirs")
    return Runtime(
        "containerd",
        file,
        table.get("version", 1),
        section.get("enable_cdi"),
        None if directories is None else tuple(directories),
        default,
        options.get("BinaryName") or None,
    )


def _with_imports(root: Path, file: Path) -> Table:
    """A configuration and what it imports, which counts before it; nothing where there is no file."""
    try:
        table = tomllib.loads(on_host(root, file).read_text())
    except FileNotFoundError:
        return {"version": None}
    for pattern in table.get("imports", ()):
        given = Path(pattern)
        seen = on_host(root, given if given.is_absolute() else file.parent / given)
        for imported in sorted(seen.parent.glob(seen.name)):
            if imported != on_host(root, file):
                table = _merged(table, tomllib.loads(imported.read_text()))
    return table


def _merged(table: Table, over: Table) -> Table:
    """Both, the second where they differ."""
    merged = dict(table)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _crio(root: Path, file: Path) -> Runtime:
    table: Table = {}
    directory = on_host(root, Path(f"{file}.d"))
    for one in (on_host(root, file), *sorted(directory.glob("*.conf"))):
        if one.is_file():
            table = _merged(table, tomllib.loads(one.read_text()))
    section = table.get("crio", {}).get("runtime", {})
    directories = section.get("cdi_spec_dirs")
    default = section.get("default_runtime")
    return Runtime(
        "cri-o",
        file,
        cdi=True,
        directories=None if directories is None else tuple(directories),
        default=default,
        runc=section.get("runtimes", {}).get(default or "", {}).get("runtime_path"),
    )


def read_toolkit(root: Path) -> Fact[Toolkit | None]:
    """NVIDIA's container toolkit; None where none is configured."""
    try:
        if not (root / "etc").is_dir():
            return Fact.unknown(f"the host's files are not to be seen at {root}")
    except OSError as error:
        return Fact.unknown(f"the host's files are not to be seen at {root}: {error.strerror}")
    for file in TOOLKIT:
        seen = on_host(root, file)
        try:
            table = tomllib.loads(seen.read_text())
        except FileNotFoundError:
            continue
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            return Fact.unknown(f"{file} cannot be read from here: {error}")
        return Fact.of(Toolkit(file, bool(table.get(BY_ENVIRONMENT, True))))
    return Fact.of(None)
