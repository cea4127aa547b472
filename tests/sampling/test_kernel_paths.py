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
    "tests/sampling/test_score.py",
    "tests/retrieval/test_encoders.py",
    "tests/retrieval/test_search.py",
]
INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
"""Makes MKL take the kernels of Intel's CPUs on others as well; they are the ones most machines run on."""

pytestmark = [
    pytest.mark.slow,  # the tests that it repeats are of make test, on the CPU's own path
    pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL"),
]


def passes(variables: dict[str, str], *options: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, *TESTS],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout or "100%" in ended.stdout


def test_invariance_tests_pass_on_the_compatible_kernel_path() -> None:
    """``COMPATIBLE`` is a different path on every CPU, with other bits for numbers of rows that 4 does not divide."""
    passes({"MKL_CBWR": "COMPATIBLE"}, "-k", "hundred_batches or real_models or (hundreds and 6-2)")


@pytest.mark.parametrize(
    ("intel", "variables"),
    [
        # Every path of MKL and of torch once: a product takes one of MKL's, everything else one of torch's.
        (False, {"ATEN_CPU_CAPABILITY": "default"}),
        (True, {}),
        (True, {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else f"intel={value}",
)
def test_invariance_tests_pass_on_every_selectable_kernel_path(
    intel: bool, variables: dict[str, str], tmp_path: Path
) -> None:
    more = intel_kernels(tmp_path) if intel else {}
    passes(variables | more, "-k", "hundred or real_models or any_batch or batch_bitwise or cache or test_search")


def intel_kernels(folder: Path) -> dict[str, str]:
    if platform.machine() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs an x86 CPU and gcc")
    source, library = folder / "intel.c", folder / "intel.so"
    source.write_text(INTEL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library)}
