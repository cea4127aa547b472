"""Checks that runs can be compared: evaluated, different from each other, and on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.report.content import Content
from platform_sdk.evaluation.report.course import course_of
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.run_dir import RunDir

QUESTIONS = RunDir.eval_questions
LISTED = 3  # question ids listed in an error

Scores = dict[str, dict[str, float]]  # metric values by question id


def altered_files(contents: Sequence[Content]) -> tuple[str, ...]:
    """Return the reports of altered files of all runs."""
    return tuple(report for content in contents for report in content.altered)


def last_scores(content: Content) -> Scores:
    """Return the per-question values of the run's last evaluation.

    Raises:
        UserError: the run has no evaluation yet.
    """
    points = course_of(content).points
    if not points:
        raise UserError(
            f"{content.run_dir}: has no evaluation yet; resume the run until it has one", code="compare.no-evaluation"
        )
    values: Scores = points[-1].scores["per_question"]
    return values


def require_different_runs(contents: Sequence[Content]) -> None:
    """Raise a UserError if two of the directories are the same, or one is a copy of another."""
    seen: dict[str, Content] = {}
    for content in contents:
        head = content.chain[-1].hash if content.chain else str(content.run_dir.resolve())
        if (other := seen.setdefault(head, content)) is not content:
            same = content.run_dir.resolve() == other.run_dir.resolve()
            fault = "is named twice" if same else f"is a copy of {other.run_dir}"
            raise UserError(f"{content.run_dir}: {fault}; name different runs")


def require_different_weights(group: Sequence[Content]) -> None:
    """Raise a UserError if two runs of a group trained equal weights, which two seeds never do."""
    seen: dict[str, Content] = {}
    for content in group:
        digests = [entry.digests for entry in content.chain]
        trained = [each["weights"] for each in digests if each.get("weights") not in (None, each.get("parent_weights"))]
        if trained and (other := seen.setdefault(trained[-1], content)) is not content:
            raise UserError(
                f"{content.run_dir} and {other.run_dir} have trained equal weights ({trained[-1][:16]}…), so they are "
                "not two seeds of a recipe; compare runs with different seeds",
                code="compare.equal-weights",
            )


def require_same_questions(contents: Sequence[Content], lasts: Sequence[Scores]) -> None:
    """Raise a UserError if a run was not evaluated on the same questions as the first."""
    for content, last in zip(contents[1:], lasts[1:], strict=True):
        _require_equal_questions((contents[0], content), (lasts[0], last))


def _require_equal_questions(contents: tuple[Content, Content], lasts: tuple[Scores, Scores]) -> None:
    first, second = (set(values) for values in lasts)
    problems = [
        f"{len(only)} {'question was' if len(only) == 1 else 'questions were'} asked in {content.run_dir} alone "
        f"({_listed(only)})"
        for content, only in zip(contents, (first - second, second - first), strict=True)
        if only
    ]
    questions = [_questions(content.run_dir) for content in contents]
    for field in ("text", "answers"):
        differing = {
            id
            for id in first & second
            if getattr(questions[0].get(id), field, None) != getattr(questions[1].get(id), field, None)
        }
        if differing:
            problems.append(f"{len(differing)} questions of equal ids differ in their {field} ({_listed(differing)})")
    if problems:
        raise UserError(
            "the runs were not evaluated on the same questions, so their scores cannot be compared: "
            + "; ".join(problems)
            + ". Compare runs of one dataset, with the same evaluation questions and the same seed of a generated world"
        )


def _questions(run_dir: Path) -> dict[str, Question]:
    return {question.id: question for question in read_jsonl(run_dir / QUESTIONS, Question)}


def _listed(ids: set[str]) -> str:
    return ", ".join(sorted(ids)[:LISTED]) + (", …" if len(ids) > LISTED else "")
