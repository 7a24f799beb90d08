"""Builds the launch code ahead where there is a C++ compiler; without one it is compiled at first
use."""

import importlib
import sys
import types
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class Build(build_py):
    """Copies the package, and compiles its launch code."""

    def run(self) -> None:
        """Builds."""
        super().run()
        for name in self.packages:
            self.build_ahead(Path(self.build_lib) / name)

    def build_ahead(self, folder: Path) -> None:
        """Compiles the launch code of every workload in a package."""
        package = types.ModuleType("exported")
        package.__path__ = [str(folder)]
        sys.modules["exported"] = package
        native = importlib.import_module("exported._native")
        files = importlib.import_module("exported._package").read(str(folder / "__init__.py"))
        for task in files.spec["tasks"]:
            for workload in task["workloads"]:
                source = f"{workload['folder']}/launch.cpp"
                name = native.key(files, source)
                try:
                    native.compile_to(folder, folder / source, folder / native.BUILT, name)
                except native.UnavailableError as error:
                    print(f"{source} is compiled at first use: {error}")


class Wheel(bdist_wheel):
    """A wheel for any Python of this platform: nothing of it depends on Python's or torch's ABI."""

    def finalize_options(self) -> None:
        """Marks it as one with machine code."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """The wheel's tags."""
        return "py3", "none", super().get_tag()[2]


# `build/` is the folder of the `kernels` layout.
setup(
    cmdclass={"bdist_wheel": Wheel, "build_py": Build},
    options={"build": {"build_base": "_wheel"}},
)
