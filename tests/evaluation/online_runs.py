"""Run directories as an online method that answers from given passages leaves them, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Passage, Question, Rollout, given_evidence
from tests.tracking.rollouts import agent, environment, trajectory

TITLES = ("Blue Harbour", "Red Harbour", "Anna Vey", "Tom Oak")
TEXTS = (
    "Blue Harbour is a film directed by Anna Vey.",
    "Red Harbour is a film directed by Tom Oak.",
    "Anna Vey was born in Lyon.",
    "Tom Oak was born in Paris.",
)


def question(number: int, hostile: str = "") -> Question:
    """A question whose first and third passages are gold."""
    return Question(
        id=f"q{number}",
        text=f"Where was the director of film {number} born?{hostile}",
        answers=("Lyon", "Lyons"),
        dataset="world",
        gold_passages=("Blue Harbour", "Anna Vey"),
        context=tuple(
            Passage(id=f"p{place}", title=title, text=text + hostile)
            for place, (title, text) in enumerate(zip(TITLES, TEXTS, strict=True))
        ),
    )


def traced(
    number: int = 0,
    *,
    chosen: tuple[int, ...] = (1, 3),
    analysis: str = "Anna Vey directed it [1]. She was born in Lyon [3].",
    answer: str = "Lyon",
    malformed: str | None = None,
    attempt: int = 0,
    hostile: str = "",
) -> Rollout:
    """An answer in three sections; ``chosen`` are passage numbers from 1, as the response writes them."""
    asked = question(number, hostile)
    listed = ",".join(map(str, chosen))
    said = f"<relevance>[{listed}]</relevance><analysis>{analysis}</analysis><answer>{answer}</answer>"
    passages = "\n".join(f"[{n}] {p.title} : {p.text}" for n, p in enumerate(asked.context, start=1))
    right = answer in asked.answers
    exact = set(chosen) == {1, 3}
    rewards = {
        "format": float(malformed is None),
        "accuracy": float(right),
        "relevance": 1.0 if exact else 0.5 if {1, 3} & set(chosen) else 0.0,
        "bonus": 10.0 * float(right and exact and malformed is None),
    }
    return Rollout(
        question=asked,
        attempt=attempt,
        seed=number,
        main=trajectory(
            "agent",
            "agent",
            [
                environment(f"Answer from the passages. {asked.text}\n{passages}", *given_evidence(asked.context)),
                agent(said, malformed),
            ],
            selected=tuple(n - 1 for n in chosen if 1 <= n <= len(asked.context)),
            answer=answer,
        ),
        outcome="answered",
        rewards={**rewards, "reward": sum(rewards.values()), "em": float(right), "f1": float(right)},
        weights="w" * 64,
        corpus="c" * 64,
    )


def write_evaluation(run_dir: Path, phase: str, right: int, *, questions: int = 10, hostile: str = "") -> None:
    """An evaluation of ``questions`` questions, the first ``right`` of them answered correctly."""
    rollouts = [
        traced(
            n, answer="Lyon" if n < right else "Paris" + hostile, chosen=(1, 3) if n < right else (2,), hostile=hostile
        )
        for n in range(questions)
    ]
    write_jsonl(run_dir / phase / "rollouts.jsonl", Rollout, rollouts)
    write_scores(
        run_dir,
        phase,
        {r.question.id: {name: r.rewards[name] for name in ("em", "f1", "format", "reward")} for r in rollouts},
    )


def write_scores(run_dir: Path, phase: str, per_question: dict[str, dict[str, float]]) -> None:
    metrics: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for values in per_question.values() for name in values):
        values = [values[name] for values in per_question.values() if name in values]
        mean = sum(values) / len(values)
        metrics[name] = {"value": mean, "low": max(0.0, mean - 0.1), "high": mean + 0.1, "n": len(values)}
    scores = {"phase": phase, "n": len(per_question), "metrics": metrics, "per_question": per_question}
    (run_dir / phase).mkdir(parents=True, exist_ok=True)
    (run_dir / phase / "scores.json").write_text(json.dumps(scores))


def update(number: int, of: int, **changes: Any) -> dict[str, Any]:
    """A line of updates.jsonl: 10 s, 8 rollouts of 100 tokens each; rewards rise over ``of`` updates."""
    share = number / of
    return {
        "update": number,
        "mean_reward": 1 + 11 * share,
        "rewards": {"format": 0.5 + share / 2, "accuracy": share, "bonus": 10 * share, "reward": 1 + 11 * share},
        "zero_variance": 1 - share,
        "rollouts": 8,
        "trajectories": 8,
        "tokens_sampled": 800,
        "tokens_trained": 700,
        "loss": -0.2 + 0.3 * share,
        "kl": 0.01 * number,
        "truncated": 0,
        "dropped": 0,
        "clip_fraction": 0.02,
        "statistics": {"ratio": 1.0, "entropy": 2.0, "effective_sample_size": 0.9, "ratio_tail": 0.01},
        "learning_rate": 1e-4,
        "grad_norm": 0.5,
        "sampling_seconds": 6.0,
        "training_seconds": 3.0,
        "sync_seconds": 1.0,
        "weights": "w" * 64,
        "optimizer_steps": 4,
        **changes,
    }  # fmt: skip


def make_online_run(folder: Path, *, updates: int = 20, hostile: str = "", name: str = "online") -> Path:
    """A run of ten questions, evaluated before, after half of its updates, and after all: 2, 5 and 9 right."""
    run_dir = folder / name
    (run_dir / "corpus").mkdir(parents=True)
    recipe = {"pipeline": "arena", "name": name + hostile, "description": hostile, "parameters": {"beta": 0.04}}
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    write_jsonl(run_dir / "corpus" / "questions.eval.jsonl", Question, [question(n, hostile) for n in range(10)])
    for phase, right in (("eval-start", 2), (f"eval-u{updates // 2:04d}", 5), ("eval-final", 9)):
        write_evaluation(run_dir, phase, right, hostile=hostile)
    phase_dir = run_dir / "online"
    for number in range(1, updates + 1):
        group = [traced(number, attempt=a, answer="Lyon" if a % 2 else "Paris", hostile=hostile) for a in range(4)]
        write_jsonl(phase_dir / "rollouts" / f"{number:04d}.jsonl", Rollout, group)
    lines = [json.dumps(update(number, updates)) for number in range(1, updates + 1)]
    (phase_dir / "updates.jsonl").write_text("\n".join(lines) + "\n")
    (phase_dir / "train.json").write_text(
        json.dumps({"weights": "w" * 64, "updates": updates, "rollouts": 8 * updates})
    )
    return run_dir
