"""An evaluation's answers in the datasets' official forms, so that anybody can run the official scripts on them.

HotpotQA and 2WikiMultihopQA: one JSON object of ``answer``, ``sp`` (and ``evidence``) by id; no agent names supporting
sentences, so these are empty, and the scripts say that they are missing. MuSiQue: JSONL of ``id``,
``predicted_answer``, ``predicted_support_idxs``, ``predicted_answerable``; a question without an answer has an empty
one, since the script wants every line, and the paragraphs are those of the question's own that the agent chose (none
where it was not given them). NQ: JSONL of ``question`` and ``prediction``. QALD-10: a JSON object of lists of
answers by id. A generated world has no script: its form is HotpotQA's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from platform_sdk.files import write_text
from platform_sdk.records import Rollout


def write_predictions(folder: Path, rollouts: Sequence[Rollout], suffix: str = "") -> list[Path]:
    """Write ``predictions-DATASET.json`` or ``.jsonl`` for each dataset among the rollouts; return the files."""
    by_dataset: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_dataset.setdefault(rollout.question.dataset, []).append(rollout)
    return [_write(folder / f"predictions{suffix}-{dataset}", dataset, some) for dataset, some in by_dataset.items()]


def _write(stem: Path, dataset: str, rollouts: Sequence[Rollout]) -> Path:
    answered = [(rollout.question, rollout.main.answer) for rollout in rollouts if rollout.main.answer is not None]
    match dataset:
        case "musique":
            lines: list[dict[str, Any]] = [
                {
                    "id": rollout.question.id,
                    "predicted_answer": rollout.main.answer or "",
                    "predicted_support_idxs": _chosen_paragraphs(rollout),
                    "predicted_answerable": True,
                }
                for rollout in rollouts
            ]
            return _lines(stem, lines)
        case "nq":
            return _lines(stem, [{"question": question.text, "prediction": answer} for question, answer in answered])
        case "qald10":
            return _object(stem, {question.id: [answer] for question, answer in answered})
        case _:
            answers = {question.id: answer for question, answer in answered}
            evidence: dict[str, Any] = {"evidence": {}} if dataset == "2wikimultihopqa" else {}
            return _object(stem, {"answer": answers, "sp": {}, **evidence})


def _chosen_paragraphs(rollout: Rollout) -> list[int]:
    """Return the ``idx`` of each chosen passage of the question's context, which ends the passage's id."""
    given = {passage.id for passage in rollout.question.context}
    chosen = (rollout.main.evidence[place].id for place in rollout.main.selected)
    return [int(id.rpartition("/")[2]) for id in chosen if id in given]


def _object(stem: Path, content: dict[str, Any]) -> Path:
    path = stem.with_name(f"{stem.name}.json")
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return path


def _lines(stem: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path = stem.with_name(f"{stem.name}.jsonl")
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path
