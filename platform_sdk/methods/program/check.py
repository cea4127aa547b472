"""Check of a recipe's program: one session with the untrained policy, and its problems for training."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.errors import UserError
from platform_sdk.methods.asking import engine_here, retrieval_here
from platform_sdk.methods.context import Context
from platform_sdk.methods.method import load_method
from platform_sdk.methods.program.agent import measures
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout, Trajectory, Turn
from platform_sdk.retrieval.index import build_index
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.rollout import run as play

ASKED = "asked"
"""Id of a question that is none of the dataset's."""


@dataclass(frozen=True)
class ProgramCheck:
    """One session of a program.

    Attributes:
        rollout: the session as training would record it.
        problems: reasons why the policy cannot learn from such sessions; do not train a recipe that has one.
        warnings: reasons why training may be slower, or different from what the program's author may expect.
        notes: settings that were changed for this machine.
        seconds: wall time of the session.
    """

    rollout: Rollout
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    def facts(self) -> dict[str, Any]:
        """Return the session as plain data."""
        rollout = self.rollout
        numbers = measures(rollout)
        return {
            "question": rollout.question.text,
            "answer": rollout.main.answer,
            "outcome": rollout.outcome,
            "status": rollout.program.status if rollout.program else None,
            "stderr": rollout.program.stderr if rollout.program else "",
            "seconds": round(self.seconds, 2),
            **{name: int(numbers[name]) for name in ("calls", "searches", "tokens")},
            "threads": [
                {"reason": reason, "calls": [_call(turn) for turn in trajectory.agent_turns]}
                for reason, trajectory in threads(rollout)
            ],
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def check(recipe: Recipe, folder: Path, question: str | None = None) -> ProgramCheck:
    """Run one session of a recipe's program with the recipe's policy before training.

    Args:
        folder: directory of the corpus and the index, which are reused if an earlier check wrote them.
        question: text of the question; by default the first evaluation question.

    Raises:
        UserError: the recipe has another method or no questions, or its data, model or command are missing.
    """
    method = load_method(recipe.pipeline.document.method)
    if method.name != "program":
        raise UserError(f"{recipe.path}: is a recipe of the method {method.name}; give one of the pipeline program")
    values, notes = recipe.parameters, list[str]()
    data_dir = values.get("data_dir")
    prepare(DatasetSpec.model_validate(values["dataset"]), Path(data_dir) if data_dir else None, folder)
    retrieval = retrieval_here(RetrievalSpec.model_validate(values["retrieval"]))
    built = build_index(folder, retrieval, values["environment"], show_progress=False)
    engine = engine_here(recipe.settings("sampling").engine, notes)
    context = method.context(
        Context(
            run_dir=folder, method=method.name, environment=values["environment"], agent=values["agent"],
            sampling=values["sampling"] | {"engine": engine.model_dump(mode="json")},
            retrieval=retrieval.model_dump(mode="json"), searched_digest=built.corpus_digest, seed=values["seed"],
        )
    )  # fmt: skip
    chosen = _question(recipe, folder, question)
    with closing(load_engine(engine, resolve(values["model"]))) as loaded, method.resources(context) as resources:
        policy = Policy(loaded.tokenizer, loaded.weight_version)
        agent = method.agent(context, policy, "check", resources)
        began = time.monotonic()
        [rollout] = play([partial(agent.rollout, chosen, 0)], loaded, live=1)
        seconds = time.monotonic() - began
    return ProgramCheck(
        rollout, tuple(problems(rollout)), tuple(warnings(rollout, context.agent)), tuple(notes), seconds
    )


def _question(recipe: Recipe, folder: Path, text: str | None) -> Question:
    known = [
        question
        for part in ("eval", "train")
        for question in read_jsonl(folder / "corpus" / f"questions.{part}.jsonl", Question)
    ]
    if text is None:
        if not known:
            raise UserError(f"{recipe.path}: its dataset has no questions; give one with --question")
        return known[0]
    same = next((question for question in known if question.text.strip() == text.strip()), None)
    dataset = known[0].dataset if known else "hotpotqa"
    return same or Question(id=ASKED, text=text, answers=("unknown",), dataset=dataset)


def threads(rollout: Rollout) -> list[tuple[str, Trajectory]]:
    """Return the threads of a session, each with the reason why it began."""
    reasons = rollout.program.threads if rollout.program else ()
    return list(zip(reasons, rollout.trajectories, strict=False))  # a session without calls has a trajectory, no thread


def _call(turn: Turn) -> Mapping[str, Any]:
    return {
        "prompt_tokens": turn.start,
        "sampled_tokens": turn.end - turn.start,
        "text": turn.text,
        "tool_calls": [call.model_dump(mode="json") for call in turn.tool_calls],
    }


def problems(rollout: Rollout) -> Iterator[str]:
    """Yield the reasons why the policy cannot learn from a session."""
    end = rollout.program
    if end is None or not end.threads:
        yield (
            "the program requested no completion, so there is nothing to train on; set its client's base URL and key "
            "from OPENAI_BASE_URL and OPENAI_API_KEY"
        )
    if rollout.outcome == "no_answer":
        yield 'the program gave no answer; print it as the last line, e.g. {"answer": "Ida Roth"}'
    elif rollout.outcome != "answered":
        status = "" if end is None or end.status is None else f" with exit status {end.status}"
        yield f"the program ended as {rollout.outcome}{status}; its standard error is shown above"


def warnings(rollout: Rollout, spec: AgentSpec) -> Iterator[str]:
    """Yield reasons why training may be slower, or different from what the program's author may expect."""
    end = rollout.program
    reasons = end.threads if end else ()
    calls = [len(trajectory.agent_turns) for _, trajectory in threads(rollout)]
    if len(calls) > 1 and set(calls) == {1}:
        yield (
            f"each of the {len(calls)} calls is a thread, so prompts are tokenized and trained on again at every call; "
            "send earlier messages and replies back unchanged where the program's logic allows it"
        )
    if "template" in reasons:
        yield (
            f"the chat template rewrites earlier text before {reasons.count('template')} of {len(reasons)} threads (as "
            "Qwen3 drops past thoughts); each such thread is trained on by itself"
        )
    if "edited" in reasons:
        yield (
            f"the program changed its history before {reasons.count('edited')} of {len(reasons)} threads; each such "
            "thread is trained on by itself"
        )
    yield from end.notes if end else ()
    cut = sum(
        turn.end - turn.start >= spec.max_tokens
        for trajectory in rollout.trajectories
        for turn in trajectory.agent_turns
    )
    if cut:
        yield f"{cut} of {sum(calls)} completions reached agent.max_tokens ({spec.max_tokens}); raise it"
