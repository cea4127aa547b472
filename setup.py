"""Puts pipelines, components, manifests, studies and example programs into the wheel; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPipelines(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install finds them in the checkout
            for folder in ("components", "examples/programs", "manifests", "pipelines", "studies"):
                target = Path(self.build_lib, "platform_sdk", "shipped", folder)
                left_out = shutil.ignore_patterns("__pycache__", "node_modules")
                shutil.copytree(folder, target, dirs_exist_ok=True, ignore=left_out)


setup(cmdclass={"build_py": BuildWithPipelines})
