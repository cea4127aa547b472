"""The library's types, checked like any other test: on one worker, while another runs the next tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_mypy_finds_no_fault() -> None:
    """Incremental: mypy keeps what it found in .mypy_cache, so that only the first run takes a minute."""
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
