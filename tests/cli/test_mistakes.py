"""Every mistake ends with status 2 and one message that names the place and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.mistakes import MISTAKES, Mistake, make, plain


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_mistake_is_reported_with_its_place_and_a_remedy(mistake: Mistake, tmp_path: Path) -> None:
    told = make(mistake, tmp_path)
    message = plain(told.message)
    assert told.status == 2, message
    assert "Traceback" not in message
    assert mistake.place in message
    assert mistake.remedy in message
    assert len(message) < 600
    assert not (tmp_path / "run").exists()  # nothing was begun
