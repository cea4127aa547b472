"""Mutated recipes, pipelines, data, predictions, responses and completions: accepted, or one clear error each.

``python -m tests.fuzz --inputs 2000 --seed 0`` prints a table and keeps what fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from tests.fuzz.campaign import fuzz, table
from tests.fuzz.workers import Input, run_limited


def check(inputs: int, seed: int, keep: Path) -> None:
    results = fuzz(inputs, seed, keep=keep)
    failures = [f"{result.name}: {result.outcome.message}" for result in results if result.outcome.ending == "failure"]
    assert not failures, "\n".join([table(results), *failures, f"the inputs are in {keep}"])


def test_mutated_inputs_are_accepted_or_refused_with_one_clear_error(tmp_path: Path) -> None:
    check(99, seed=0, keep=tmp_path)


@pytest.mark.slow
def test_two_thousand_mutated_inputs(tmp_path: Path) -> None:
    check(2000, seed=0, keep=tmp_path)


def spin(_: Path) -> bool:
    while True:
        pass


def grow(_: Path) -> bool:
    return bool(bytearray(10**9))


def fail(error: Exception) -> bool:
    raise error


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (spin, "processor time"),
        (grow, "200 MiB"),
        (lambda folder: fail(KeyError("x")), "KeyError"),
        (lambda folder: fail(UserError("it is wrong")), "names no file"),
        (lambda folder: fail(UserError("a.txt: one\ntwo")), "2 lines"),
        (lambda folder: fail(UserError("a.txt: " + "x" * 9000)), "9007 characters"),
        (lambda folder: fail(UserError("a.txt: \x1b[2J")), "do not print"),
    ],
)
def test_fuzzer_sees_what_is_not_a_clear_error(run: object, says: str) -> None:
    outcome = run_limited(Input({"a.txt": b""}, run), cpu_seconds=1)  # type: ignore[arg-type]
    assert outcome.ending == "failure"
    assert says in outcome.message
