"""What a phase is learned from, in a few lines of Markdown, for the pipeline's Markdown artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def build_selection(figures: Mapping[str, Any]) -> str:
    """Say how much of a phase was selected, and how many attempts its questions took.

    Args:
        figures: The phase's ``figures.json``.
    """
    answered = figures["questions"] - figures["questions_without_accepted"]
    wanted = f" ({figures['wanted']} were wanted)" if figures.get("wanted") else ""
    # The warm-up has no mean reward: it takes the attempts of a question until one is right.
    reward = "–" if figures["mean_reward"] is None else f"{figures['mean_reward']:.3f}"
    lines = [
        f"# {figures['phase']}: what is learned from",
        "",
        f"**{figures['selected']}** of {figures['rollouts']} rollouts{wanted}, {figures['examples']} examples; "
        f"{answered} of {figures['questions']} questions have one that was accepted.",
        "",
        "| mean reward | threshold | accepted | well-formed |",
        "| ---: | ---: | ---: | ---: |",
        f"| {reward} | {figures['threshold']:.3f} | {100 * figures['acceptance_rate']:.1f} % "
        f"| {100 * figures['well_formed']:.1f} % |",
        "",
        "| attempts | questions |",
        "| ---: | ---: |",
        *(f"| {attempts} | {questions} |" for attempts, questions in figures["attempts_histogram"].items()),
    ]
    return "\n".join(lines) + "\n"
