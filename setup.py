"""Native artefacts that pyproject.toml alone cannot name: the interceptor, and what is built through cffi.

A wheel of the same sources by the same compiler is the same wherever it is built, where SOURCE_DATE_EPOCH says of when
its files are: debug information names no directory of the builder's, and modes follow no umask.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILT = Path("libshim/build")
CFFI = ("libshim/_pages_build.py", "arbiter/_arbiter_build.py", "scheduler_ext/laying/_laying_build.py")
FORWARDERS = ("libcuda.so.1", "libnvidia-ml.so.1")
ANYWHERE = f"-ffile-prefix-map={Path.cwd()}=."
INTERCEPTOR = Extension("libshim.libaliquot", sources=["libshim/src/loader.c"])


class BuildInterceptor(build_ext):
    """Builds libaliquot.so with its own Makefile: a plain shared object, no Python symbols, no ABI suffix."""

    def get_ext_filename(self, ext_name: str) -> str:
        """The interceptor keeps its plain name; the cffi reader gets the usual one."""
        if ext_name.rpartition(".")[2] == "libaliquot":
            return str(Path(*ext_name.split(".")).with_suffix(".so"))
        return str(super().get_ext_filename(ext_name))

    def build_extension(self, ext: Extension) -> None:
        """Hands the interceptor to make and everything else to setuptools."""
        if ext.name != INTERCEPTOR.name:
            ext.extra_compile_args = [*ext.extra_compile_args, ANYWHERE]
            super().build_extension(ext)
            return
        make = ["make", "--silent", "--no-print-directory", "-C", "libshim", f"CPPFLAGS={ANYWHERE}"]
        subprocess.run(make, check=True)
        target = Path(self.get_ext_fullpath(ext.name))
        install(BUILT / target.name, target)
        install_forwarders(target.parent)

    def copy_extensions_to_source(self) -> None:
        """What is not an extension module is not copied for us."""
        super().copy_extensions_to_source()
        install_forwarders(Path("libshim"))


def install_forwarders(package: Path) -> None:
    """Puts the forwarders where the package has them."""
    for name in FORWARDERS:
        install(BUILT / "forwarder" / name, package / "forwarder" / name)


def install(built: Path, target: Path) -> None:
    """Copies a library to where the package has it. Programs that have the old one mapped keep it whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(built, temporary)
    temporary.replace(target)


os.umask(0o022)
setup(
    ext_modules=[INTERCEPTOR],
    cffi_modules=[f"{script}:ffibuilder" for script in CFFI],
    cmdclass={"build_ext": BuildInterceptor},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
