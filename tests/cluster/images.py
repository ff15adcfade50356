"""Images for the real node, made of Debian packages and Python packages without a registry, and kept in the cache.

An image is a tar archive of an OCI layout; `Runtime.load` brings it in under its names.
"""

import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.cluster.helm import REGISTRY
from tests.cluster.programs import kubernetes_version, program
from tests.cluster.runtime import PAUSE
from tests.tools.cache import cache_dir
from tests.tools.debian import NotAvailableError, unpack

TENANTS = ("docker.io/library/python:3.12-slim", "docker.io/library/busybox:1.36")
"""What the examples name: an image with a shell and a Python stands for all of them."""
ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "deploy/images/requirements.txt"
OURS = (
    *("*.toml", "setup.py", "README.md", "LICENSE"),
    *("aliquot", "arbiter", "libshim", "plugin", "sandbox", "scheduler_ext", "webhook"),
    *("deploy/crds", "deploy/scheduler", "deploy/webhook", "examples/inference"),
)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VERSIONED = ("pyproject.toml", "libshim/src/tenant.c")
"""Files that say which version this is; of the interceptor's, the pages tell it."""
KEPT_S = 3600
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
BYTECODE = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
"""As pip and Debian do when they install. Who has no bytecode makes it at every start, which takes 15 MiB that stay."""
SITE = "usr/local/lib/python3.11/dist-packages"
TENANT_PACKAGES = ("pip", "cuda-bindings>=13,<14", "cuda-core>=1")
DEBIAN = (
    *(
        "base-files",
        "coreutils",
        "dash",
        "libacl1",
        "libattr1",
        "libbz2-1.0",
        "libc-bin",
        "libc6",
        "libexpat1",
    ),
    *("libffi8", "libgcc-s1", "libgmp10", "liblzma5", "libpcre2-8-0", "libpython3.11-minimal"),
    *(
        "libpython3.11-stdlib",
        "libselinux1",
        "libssl3",
        "libstdc++6",
        "libuuid1",
        "python3.11-minimal",
        "zlib1g",
    ),
)
MERGED = ("bin", "lib", "lib64", "sbin")
"""Debian's packages still bring these beside /usr; on a system they are links into it."""
NOT_NEEDED = (
    "usr/include",
    "usr/share/doc",
    "usr/lib/python3.11/config-",
    "usr/lib/python3.11/EXTERNALLY-MANAGED",
)
LINKS = {
    **{name: f"usr/{name}" for name in MERGED},
    "usr/bin/python": "python3.11",
    "usr/bin/python3": "python3.11",
    "usr/bin/sh": "dash",
}
ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAUSE_SOURCE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
  signal(SIGTERM, end); signal(SIGINT, end); signal(SIGCHLD, reap);
  for (;;) pause();
}
"""


def pause_image() -> Path:
    """What keeps a pod's namespaces."""
    return image([PAUSE], [_cached("pause", PAUSE_SOURCE, _fill_pause)], ["/pause"])


def tenant_image() -> Path:
    """A Python with CUDA bindings, under the names of the examples' images."""
    return image(TENANTS, [system_layer(), python_layer(TENANT_PACKAGES)])


def service_image(version: str = VERSION) -> Path:
    """This tree and what the chart's images are made of, under the names of both: pods say what they run.

    As another version, it is built from the same sources but for their version, and its interceptor is another file.
    """
    layers = [system_layer(), python_layer(("--requirement", str(LOCKED))), our_layer(version)]
    return image([f"{REGISTRY}/aliquot/{name}:{version}" for name in ("agent", "control")], layers)


def scheduler_image() -> Path:
    """kube-scheduler, which needs nothing but itself."""
    name = f"registry.k8s.io/kube-scheduler:{kubernetes_version()}"
    binary = program("kube-scheduler")
    fill = functools.partial(_add_program, binary=binary)
    return image([name], [_cached("kube-scheduler", str(binary), fill)], ["/usr/local/bin/kube-scheduler"])


def system_layer() -> Path:
    """Debian with a shell and a Python."""
    return _cached("debian", repr((DEBIAN, LINKS, NOT_NEEDED)), _fill_system)


def python_layer(requirements: Sequence[str]) -> Path:
    """Python packages as pip finds them now; the same for the same requirements until the cache is emptied."""
    recipe = repr((compiled(), [Path(r).read_text() if Path(r).is_file() else r for r in requirements]))
    return _cached("python", recipe, functools.partial(_fill_python, requirements=requirements))


def our_layer(version: str) -> Path:
    """This tree as a version, built as a wheel and installed."""
    listed = subprocess.run(["git", "ls-files", "-z", *OURS], cwd=ROOT, capture_output=True, check=True)
    files = [
        Path(name.decode()) for name in listed.stdout.split(b"\0") if name and (ROOT / name.decode()).exists()
    ]
    recipe = repr([compiled(), version, *((str(path), _digest(_content(ROOT / path))) for path in files)])
    return _cached(f"aliquot_{version}", recipe, functools.partial(_fill_ours, files=files, version=version))


def compiled() -> tuple[object, ...]:
    """What bytecode depends on; not where this Python is, so that all checkouts have their layers in common."""
    return (sys.version_info[:2], BYTECODE)


def _content(path: Path) -> bytes:
    """The bytes of a file; of a link, where it leads."""
    return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()


def image(names: Sequence[str], layers: Sequence[Path], entrypoint: Sequence[str] = ()) -> Path:
    """An archive of these layers under these names."""
    recipe = repr((names, [layer.name for layer in layers], entrypoint))
    kind = f"image-{_digest(repr(names).encode())[:8]}"
    target = cache_dir("images") / f"{kind}-{_digest(recipe.encode())[:16]}.tar"
    if not _is_kept(target):
        _forget(kind)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            archive = Path(scratch) / "image.tar"
            with tarfile.open(archive, "w") as tar:
                _write_layout(tar, names, layers, entrypoint)
            archive.rename(target)
    return target


def _write_layout(
    tar: tarfile.TarFile, names: Sequence[str], layers: Sequence[Path], entrypoint: Sequence[str]
) -> None:
    described = [_blob(tar, layer.read_bytes(), "application/vnd.oci.image.layer.v1.tar") for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [PATH], "Entrypoint": list(entrypoint)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in described]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(tar, _json(config), "application/vnd.oci.image.config.v1+json"),
        "layers": described,
    }
    one = _blob(tar, _json(manifest), "application/vnd.oci.image.manifest.v1+json")
    named = [{**one, "annotations": {"io.containerd.image.name": name}} for name in names]
    _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": named}))
    _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))


def _blob(tar: tarfile.TarFile, content: bytes, media_type: str) -> dict[str, object]:
    digest = _digest(content)
    _add(tar, f"blobs/sha256/{digest}", content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _cached(kind: str, recipe: str, fill: Callable[[tarfile.TarFile], None]) -> Path:
    """A layer made by `fill` when there is none of this recipe yet, made as this module makes layers now."""
    made = _digest(Path(__file__).read_bytes() + recipe.encode())
    target = cache_dir("images") / f"{kind}-{made[:16]}.tar"
    if not _is_kept(target):
        print(f"making {target} (once) ...", file=sys.stderr, flush=True)
        _forget(kind)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            layer = Path(scratch) / "layer.tar"
            with tarfile.open(layer, "w") as tar:
                fill(tar)
            layer.rename(target)
    return target


def _is_kept(target: Path) -> bool:
    """Whether a file is there; it is then for as long as who is told so needs to read it."""
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    return True


def _forget(kind: str) -> None:
    """Removes what an earlier tree has left of a kind, but for what a test run may be about to read."""
    for path in cache_dir("images").glob(f"{kind}-*.tar"):
        if time.time() - path.stat().st_mtime > KEPT_S:
            path.unlink(missing_ok=True)


def _fill_pause(tar: tarfile.TarFile) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, binary = Path(scratch, "pause.c"), Path(scratch, "pause")
        source.write_text(PAUSE_SOURCE)
        _run("cc", "-Os", "-static", "-o", str(binary), str(source))
        tar.add(binary, "pause", filter=_owned_by_root)


def _fill_system(tar: tarfile.TarFile) -> None:
    root = unpack(*DEBIAN)
    for path in sorted(root.rglob("*")):
        inside = str(path.relative_to(root))
        merged = f"usr/{inside}" if inside.split("/", maxsplit=1)[0] in MERGED else inside
        if inside not in MERGED and merged not in LINKS and not merged.startswith(NOT_NEEDED):
            tar.add(path, merged, recursive=False, filter=_owned_by_root)
    for name, target in LINKS.items():
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        tar.addfile(link)
    _add(tar, "etc/passwd", ACCOUNTS.encode())
    _add(tar, "etc/group", GROUPS.encode())
    scratch = tarfile.TarInfo("tmp")
    scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(scratch)


def _fill_ours(tar: tarfile.TarFile, files: Sequence[Path], version: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        for path in files:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / path, follow_symlinks=False)
        for name in VERSIONED:
            (source / name).write_text((source / name).read_text().replace(VERSION, version))
        _run(
            *PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, str(source)
        )
        (wheel,) = Path(scratch).glob("*.whl")
        _fill_python(tar, ["--no-deps", str(wheel)])


def _fill_python(tar: tarfile.TarFile, requirements: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        only = ["--only-binary", ":all:", "--python-version", "3.11", "--no-compile"]
        _run(*PIP, "install", "--quiet", *only, "--target", scratch, *requirements)
        _run(sys.executable, *BYTECODE, scratch, check=False)
        for path in sorted(Path(scratch).rglob("*")):
            inside = path.relative_to(scratch)
            if inside.parts[0] != "bin":
                tar.add(path, f"{SITE}/{inside}", recursive=False, filter=_owned_by_root)
        for script in sorted(Path(scratch, "bin").glob("*")):
            _add(tar, f"usr/local/bin/{script.name}", _installed(script.read_text()).encode(), 0o755)


def _installed(script: str) -> str:
    """A command that pip wrote, for the image's Python instead of this one; a shell's script stays as it is."""
    first, _, rest = script.partition("\n")
    if first == "#!/bin/sh" and not rest.startswith("'''exec' "):
        return script
    return f"#!/usr/bin/python3\n{rest}"


def _add_program(tar: tarfile.TarFile, binary: Path) -> None:
    tar.add(binary, f"usr/local/bin/{binary.name}", filter=_owned_by_root)


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and check:
        raise NotAvailableError(f"{' '.join(command[:4])} ...: {done.stderr.strip()[-500:]}")


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
