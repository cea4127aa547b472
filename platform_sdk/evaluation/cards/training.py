"""Cards of selection, training, iterations and failed steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from platform_sdk.evaluation.cards.figures import amount, duration, name_of
from platform_sdk.evaluation.cards.markdown import card, number, plain, table

SHARES = frozenset({"well_formed", "acceptance_rate"})
LATER_LINES = 12
LINE = 160


def selection_card(figures: Mapping[str, Any]) -> str:
    """Return the figures and histograms of a training phase.

    Args:
        figures: The content of ``figures.json``.
    """
    rows = [
        ["sampling time", duration(value)] if name == "sampling_seconds" else [name_of(name), _figure(name, value)]
        for name, value in figures.items()
        if name not in ("phase", "iteration") and isinstance(value, int | float)
    ]
    histograms = [
        table(
            [name.removesuffix("_histogram").replace("_", " "), "questions"],
            [[k, number(v)] for k, v in bars.items()],
            numbers=1,
        )
        for name, bars in figures.items()
        if isinstance(bars, Mapping)
    ]
    sentence = "What was sampled, and how much of it is trained on."
    return card(f"Selection: {figures['phase']}", sentence, table(["figure", "value"], rows, numbers=1), *histograms)


def _figure(name: str, value: float) -> str:
    return f"{amount(value)} %" if name in SHARES else number(value)


def training_card(phase: str, trained: Mapping[str, Any]) -> str:
    """Return the loss or reward at the start and end of a training, with its tokens and seconds.

    Args:
        phase: The training's phase.
        trained: The content of ``train.json``.
    """
    if trained.get("skipped"):
        return card(f"Training: {phase}", f"Nothing was trained: {plain(str(trained['skipped']), 300)}")
    known = [name for name in ("loss", "reward") if trained.get(f"{name}_first") is not None]
    ends = [[name, *(number(trained[f"{name}_{end}"]) for end in ("first", "last"))] for name in known]
    counts = ("updates", "rollouts", "examples", "steps", "tokens_sampled", "tokens_trained", "truncated")
    rows = [[name_of(name), number(trained[name])] for name in counts if trained.get(name) is not None]
    times = ("sampling_seconds", "training_seconds")
    rows += [[name.split("_")[0] + " time", duration(trained[name])] for name in times if name in trained]
    return card(
        f"Training: {phase}",
        "The policy at the first and the last step, and what training cost.",
        table(["", "first", "last"], ends, numbers=2),
        table(["figure", "value"], rows, numbers=1),
    )


def iterations_card(iterations: Sequence[Mapping[str, Any]]) -> str:
    """Return one row for each finished iteration.

    Args:
        iterations: ``train.json`` and ``figures.json`` of each iteration as one mapping; ``em`` is the exact match of
            an iteration that was evaluated.
    """
    sentence = f"Finished iterations: {len(iterations)}. Time is for sampling and training."
    return card("Iterations", sentence, iterations_table(iterations))


def iterations_table(iterations: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of ``iterations_card``: EM in percent if evaluated, else the mean reward."""
    evaluated = any(figures.get("em") is not None for figures in iterations)
    rows = []
    for figures in iterations:
        em = figures.get("em")
        score = ("–" if em is None else amount(em)) if evaluated else number(figures.get("mean_reward"))
        selected = "–" if figures.get("selected") is None else f"{figures['selected']:,}"
        times = [figures[name] for name in ("sampling_seconds", "training_seconds") if figures.get(name) is not None]
        time = duration(sum(times)) if times else "–"
        rows.append([str(figures["iteration"]), score, selected, number(figures.get("loss_last")), time])
    return table(["iteration", "EM %" if evaluated else "reward", "selected", "loss", "time"], rows, numbers=4)


def rewards_card(phase: str, means: Mapping[str, float]) -> str:
    """Return the mean of each reward, recomputed from a phase's rollouts."""
    rows = [[name_of(name), number(value)] for name, value in means.items()]
    sentence = "Rewards computed again from what the rollouts record; all equal the recorded ones."
    return card(f"Rewards: {phase}", sentence, table(["reward", "mean"], rows, numbers=1))


def end_card(run: str, status: str, failures: Mapping[str, str]) -> str:
    """Return the run's final status, with the reason of each failed step.

    Args:
        status: FINISHED, FAILED or KILLED.
        failures: the errors of failed steps by their names.
    """
    ends = {"FINISHED": "All steps have finished.", "KILLED": "The run was cancelled.", "FAILED": "The run failed."}
    reasons = [failure_card(step, reason) for step, reason in failures.items()] if status != "FINISHED" else []
    return card(f"End: {run}", ends[status], *reasons)


def failure_card(step: str, reason: str) -> str:
    """Return the card of a failed step: the first line of the reason as the sentence, the next lines below.

    Args:
        step: The step's name.
        reason: The error's message.
    """
    first, *others = reason.strip().splitlines() or ["No reason was given."]
    shown = "\n".join(f"- {plain(line, LINE)}" for line in others[:LATER_LINES] if line.strip())
    more = f"{len(others) - LATER_LINES} more lines are in the step's log." if len(others) > LATER_LINES else ""
    return card(f"Failed: {step}", f"**{plain(first, 300)}**", shown, more)
