"""``python -m tests.fuzz --inputs 2000 --seed 0``: fuzz what reads people's files, and print a table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import fuzz, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000, help="number of inputs, over all kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a kind, or KIND/NUMBER for one input")
    keep = Path(tempfile.gettempdir()) / "hopforge-fuzz"
    parser.add_argument("--keep", type=Path, default=keep, help=f"directory of failing inputs ({keep})")
    given = parser.parse_args()
    results = fuzz(given.inputs, given.seed, given.only, given.keep)
    print(table(results))
    failures = [result for result in results if result.outcome.ending == "failure"]
    for result in failures:
        print(f"{result.name}: {result.outcome.message}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
