"""Two native artefacts that pyproject.toml alone cannot name: the interceptor and the reader of its pages."""

import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
            super().build_extension(ext)
            return
        subprocess.run(["make", "--silent", "--no-print-directory", "-C", "libshim"], check=True)
        built = Path("libshim/build/libaliquot.so")
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(built, target)


setup(
    ext_modules=[INTERCEPTOR],
    cffi_modules=["libshim/_pages_build.py:ffibuilder"],
    cmdclass={"build_ext": BuildInterceptor},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
