"""Programs played against the shipped ReAct base model in this process, with a lexical search over a small world."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EvaluationSpec, SamplingSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.methods.method import RunContext, load_method
from platform_sdk.methods.program.launch import ProgramResources
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.retrieval.lexical import Lexical
from platform_sdk.sampling.rollout import run
from platform_sdk.sampling.transformers_engine import TransformersEngine

WORLD = generate(WorldSpec(seed=5, entities=60, train_questions=0, eval_questions=6, hops=(1,), years=0.6))
PASSAGES = sorted(WORLD.passages, key=lambda passage: passage.id)
INDEX = Lexical.build([f"{passage.title} {passage.text}" for passage in PASSAGES])


def search(requests: Any, k: int) -> list[list[Evidence]]:
    found = []
    for request in requests:
        [row] = INDEX.scores([request.query])
        scores = row.toarray().ravel().round(6)
        best = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
        found.append(
            [
                Evidence(
                    kind="passage",
                    id=PASSAGES[at].id,
                    title=PASSAGES[at].title,
                    text=PASSAGES[at].text,
                    score=scores[at],
                )
                for at in best
            ]
        )
    return found


def context(agent: Any) -> RunContext[Any]:
    return RunContext(
        run_dir=Path("run"), environment="world-text", agent=agent, sampling=SamplingSpec(temperature=0.9),
        retrieval=RetrievalSpec(method="lexical"), searched_digest="c", seed=3,
    )  # fmt: skip


def played(agent: Any, engine: TransformersEngine, questions: list[Question], attempts: int = 1) -> list[Rollout]:
    starts = [partial(agent.rollout, question, attempt) for question in questions for attempt in range(attempts)]
    return sorted(run(starts, engine, live=6), key=lambda rollout: (rollout.question.id, rollout.attempt))


def program(
    engine: TransformersEngine, opened: ExitStack, spec: AgentSpec, evaluation: EvaluationSpec | None = None
) -> Any:
    resources = ProgramResources(search, opened)
    return load_method("program").agent(
        context(spec), Policy(engine.tokenizer, engine.weight_version), "eval", resources, evaluation
    )
