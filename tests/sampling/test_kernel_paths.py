"""Batch invariance on other kernel paths than this CPU's own, by settings of MKL and torch in a process of its own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
TESTS = [
    "tests/sampling/test_invariance.py",
    "tests/sampling/test_transformers_engine.py",
    "tests/retrieval/test_encoders.py",
    "tests/retrieval/test_search.py",
]
INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
"""Makes MKL take the kernels of Intel's CPUs on others as well; they are the ones most machines run on."""

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")


def passes(variables: dict[str, str], *options: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, *TESTS],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout or "100%" in ended.stdout


def test_a_path_on_which_odd_numbers_of_rows_disagree() -> None:
    """``COMPATIBLE`` is a different path on every CPU, with other bits for numbers of rows that 4 does not divide."""
    passes({"MKL_CBWR": "COMPATIBLE"}, "-k", "hundred or real_models")


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"MKL_CBWR": "COMPATIBLE"},
        {"ATEN_CPU_CAPABILITY": "default"},
        {"ATEN_CPU_CAPABILITY": "avx2"},
        {"ATEN_CPU_CAPABILITY": "avx512"},
        {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        {"MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    ],
    ids=lambda variables: "-".join(f"{name}={value}" for name, value in variables.items()),
)
@pytest.mark.parametrize("intel", [False, True], ids=["own", "intel"])
def test_every_path_that_settings_can_choose(variables: dict[str, str], intel: bool, tmp_path: Path) -> None:
    passes(variables | (intel_kernels(tmp_path) if intel else {}))


def intel_kernels(folder: Path) -> dict[str, str]:
    if platform.machine() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs an x86 CPU and gcc")
    source, library = folder / "intel.c", folder / "intel.so"
    source.write_text(INTEL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library)}
