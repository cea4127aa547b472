from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.errors import UserError
from platform_sdk.retrieval.service.tokens import Tokens


def test_tokens_are_compared_in_full(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("0123456789abcdef\n")
    (tmp_path / "two").write_text("0123456789abcdee\n")
    tokens = Tokens(tmp_path)
    assert [tokens.team(given) for given in ("0123456789abcdef", "0123456789abcdee")] == ["one", "two"]


@pytest.mark.parametrize("given", ["", "0", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF"])
def test_near_miss_of_a_token_is_rejected(tmp_path: Path, given: str) -> None:
    (tmp_path / "one").write_text("0123456789abcdef\n")
    assert Tokens(tmp_path).team(given) is None


def test_token_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "red").symlink_to("/proc/self/mem")  # a regular file whose first byte nobody can read
    with pytest.raises(UserError, match=r"its tokens cannot be read \(.+\); make the files readable"):
        Tokens(tmp_path)


def test_team_whose_name_an_http_header_cannot_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "équipe").write_text("0123456789abcdef\n")
    with pytest.raises(UserError, match="équipe: an HTTP header cannot hold this name of a team"):
        Tokens(tmp_path)
