"""Inject deliberate faults one by one and report which test detects each, and after how many seconds.

    python -m tests.faults [--only NAME] [--quick] [--json]

Each fault is applied to a temporary copy of the tree. Its own quick tests run first, and if they pass, every test that
is not slow. The exit status is 1 if a fault survives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.faults.catalogue import Fault
from tests.faults.manifests import ALL_FAULTS

ROOT = Path(__file__).parents[2]
TIMEOUT = 1800
SKIPPED = shutil.ignore_patterns(".git", ".venv*", "runs", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")


@dataclass(frozen=True)
class Outcome:
    """The first test that failed, and after how many seconds; None if the fault survived."""

    fault: str
    caught_by: str | None
    seconds: float
    quick: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", help="inject only the faults whose name contains this")
    parser.add_argument("--quick", action="store_true", help="run only a fault's own tests, not all others after them")
    parser.add_argument("--json", action="store_true", help="print one JSON object per fault")
    arguments = parser.parse_args()
    chosen = [fault for fault in ALL_FAULTS if (arguments.only or "") in fault.name]
    if not chosen:
        parser.error(f"no fault's name contains {arguments.only!r}")
    if not arguments.json:
        print(f"{'fault':44}{'seconds':>8}  caught by")
    survived = 0
    for fault in chosen:
        outcome = inject(fault, quick=arguments.quick)
        survived += outcome.caught_by is None
        if arguments.json:
            print(json.dumps(asdict(outcome)), flush=True)
        else:
            note = "" if outcome.quick or outcome.caught_by is None else " (not by its own tests)"
            print(f"{fault.name:44}{outcome.seconds:8.1f}  {outcome.caught_by or 'SURVIVED'}{note}", flush=True)
    if not arguments.json:
        print(f"{len(chosen) - survived} of {len(chosen)} faults caught")
    return min(1, survived)


def inject(fault: Fault, *, quick: bool) -> Outcome:
    """Apply a fault to a copy of the tree and run tests until one fails."""
    with tempfile.TemporaryDirectory(prefix="hopforge-fault-") as folder:
        copy = Path(folder, "tree")
        shutil.copytree(ROOT, copy, ignore=SKIPPED, symlinks=True)
        fault.apply(copy)
        began = time.monotonic()
        own = [f"tests/{path}" for path in fault.tests.split()]
        if caught := first_failure(copy, own):
            return Outcome(fault.name, caught, time.monotonic() - began, quick=True)
        # Not the check that the catalogue follows the code: in the copy it cannot.
        everything = ["tests", "-m", "not slow", "--ignore=tests/faults", "--ignore=tests/test_types.py"]
        caught = None if quick else first_failure(copy, everything)
        return Outcome(fault.name, caught, time.monotonic() - began, quick=False)


def first_failure(tree: Path, tests: list[str]) -> str | None:
    """Run tests in ``tree`` until one fails; return its name, or None.

    Raises:
        RuntimeError: pytest could not run them.
    """
    report = tree / "report.xml"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT} s"
    if done.returncode == 0:
        return None
    if done.returncode not in (1, 2) or not report.exists():
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            return f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
    raise RuntimeError(f"pytest ended with {done.returncode}, but its report names no failure:\n{done.stdout}")


if __name__ == "__main__":
    sys.exit(main())
