"""A damaged file of a run leads to equal results or to one clear error, whatever the file and the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.damage import SUBJECTS, table


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_damaged_file_leads_to_equal_results_or_one_error(name: str, tmp_path: Path) -> None:
    rows = list(table(SUBJECTS[name], tmp_path))
    wrong = [row for row in rows if not (row[-1] == "equal" or row[-1].startswith("error "))]
    assert not wrong, "\n".join(map(str, wrong))
