"""Characters of ids, texts and logs that would steer the terminal are shown escaped."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from platform_sdk import cli
from platform_sdk.cli.progress import Progress
from platform_sdk.cli.terminal import Terminal
from platform_sdk.display import DisplayFormatter, printable

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202egnp\u061c.exe\r"
STEERING = set("\x1b\x07\x9b\u202e\u061c\r")


def hopforge(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """Standard output and error of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["hopforge", *map(str, arguments)])
    with pytest.raises(SystemExit):
        cli.main()
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_terminal_leaves_emoji_codes_as_they_are() -> None:
    out = io.StringIO()
    table = Table("run")
    table.add_row("night:star:run")
    Terminal(file=out).print(table)
    assert "night:star:run" in out.getvalue()


def test_table_in_a_pipe_is_as_wide_as_its_content_unless_columns_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("metric", "value")
    table.add_row("em 2wikimultihopqa greedy", "x" * 100)

    def printed(**settings: Any) -> int:
        out = io.StringIO()
        Terminal(file=out, **settings).print(table)
        return max(map(len, out.getvalue().splitlines()))

    monkeypatch.delenv("COLUMNS", raising=False)
    assert 125 < printed() < 140
    assert printed(width=60) == 60
    monkeypatch.setenv("COLUMNS", "80")
    assert printed() == 80


def test_ids_of_files_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    gold, predictions = tmp_path / "gold.json", tmp_path / "predictions.json"
    record = {"_id": HOSTILE, "question": "q", "answer": "a", "supporting_facts": [], "context": [], "type": "x",
              "level": "easy"}  # fmt: skip
    gold.write_text(json.dumps([record]))
    predictions.write_text(json.dumps({"answer": {HOSTILE: "a"}, "sp": {HOSTILE: []}}))
    files = ("--gold", gold, "--predictions", predictions, "--per-question")
    shown = hopforge(capsys, monkeypatch, "metrics", "hotpotqa", *files)
    assert not STEERING & set(shown)
    assert "\\x1b]0;" in shown
    machine = hopforge(capsys, monkeypatch, "metrics", "hotpotqa", *files, "--json")
    assert list(json.loads(machine)["per_question"]) == [HOSTILE]


def test_errors_that_quote_input_do_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = hopforge(capsys, monkeypatch, "validate", tmp_path / f"{HOSTILE}.yaml")
    assert "no such file" in shown
    assert not STEERING & set(shown)


def test_step_output_is_escaped_and_own_styles_are_kept(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = Progress("run", tmp_path, 1, sys.stdout)
    assert isinstance(progress.console, Terminal)
    progress.console = Terminal(file=stream, force_terminal=True, width=200)
    progress.console.print(f"[bold]{escape(HOSTILE)}[/bold]")
    table = Table(escape(HOSTILE))
    table.add_row(escape(HOSTILE))
    progress.console.print(table)
    shown = stream.getvalue()
    assert "\x1b[1m" in shown
    assert not {"\x07", "\x9b", "\u202e"} & set(shown)
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown


def test_log_lines_are_escaped_and_hold_no_password() -> None:
    message = f"{HOSTILE} at http://user:secret@host"
    line = DisplayFormatter("%(message)s").format(logging.LogRecord("a", 30, "f", 1, message, None, None))
    assert not STEERING & set(line)
    assert line.endswith("at http://***@host")


@given(st.text())
def test_escaping_leaves_plain_text_and_is_not_repeated(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert not STEERING & set(shown)
    if text.isprintable():
        assert shown == text
    shown.encode()
    Console(file=io.StringIO()).print(escape(shown))
