"""The catalogue of deliberate faults follows the code."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.faults.manifests import ALL_FAULTS

ROOT = Path(__file__).parents[2]


def test_every_fault_still_applies(tmp_path: Path) -> None:
    rotten = []
    for fault in ALL_FAULTS:
        copy = tmp_path / fault.folder / fault.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / fault.folder / fault.file, copy)
        try:
            fault.apply(tmp_path)
        except ValueError as error:
            rotten.append(str(error))
            continue
        if copy.suffix == ".py":
            compile(copy.read_text(encoding="utf-8"), str(copy), "exec")
    assert not rotten, "\n".join(rotten)
    assert len({fault.name for fault in ALL_FAULTS}) == len(ALL_FAULTS) >= 40


def test_the_tests_of_a_fault_exist() -> None:
    missing = {path for fault in ALL_FAULTS for path in fault.tests.split() if not (ROOT / "tests" / path).exists()}
    assert not missing
