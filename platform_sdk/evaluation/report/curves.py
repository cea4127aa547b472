"""Curves of a report: scores, iterations of sampling and training, and online updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from platform_sdk.evaluation.cards.figures import name_of
from platform_sdk.evaluation.report.content import Content, Phase
from platform_sdk.evaluation.report.course import Point, course_of
from platform_sdk.evaluation.report.lines import Line, line_chart
from platform_sdk.tracking.updates import Update

PALETTE = ("c-final", "c-threshold", "c-other", "c-loss", "c-base", "c-leaf", "c-start", "c-sky")
FEWEST_POINTS = 3  # of a score curve; two points are not drawn

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """A chart with its title, its lines for the legend, and the name of its horizontal axis."""

    title: str
    lines: list[Line]
    svg: Markup
    axis: str


def curves(content: Content) -> list[Curve]:
    """Return the charts of a run's training, scores first."""
    return [*_scores(content), *_iterations(content), *_updates(content), *_supervised(content)]


def coloured(lines: Sequence[tuple[str, Points]]) -> list[Line]:
    return [Line(label, points, PALETTE[place % len(PALETTE)]) for place, (label, points) in enumerate(lines)]


def _chart(title: str, lines: Sequence[Line], axis: str, *, unit: bool) -> list[Curve]:
    drawn = [line for line in lines if line.points]
    unit = unit and all(0 <= y <= 1 for line in drawn for _, y in line.points)  # an own reward may have any scale
    return [Curve(title, drawn, line_chart(title, drawn, unit=unit, x=axis), axis)] if drawn else []


def _scores(content: Content) -> list[Curve]:
    course = course_of(content)
    shown = content.shown_metrics
    taken = list({point.step: point for point in course.points}.values())  # the last point of a step
    if len(taken) < FEWEST_POINTS:
        return []
    shares = [metric for metric in content.metrics if metric not in content.counts]
    parts = {whole: [m for m in shares if m.startswith(f"{whole}_")] for whole in shares}
    partial = {metric for metrics in parts.values() for metric in metrics}
    others = [metric for metric in shares if metric not in shown and metric not in partial]
    groups = [
        ("Scores on the evaluation questions", [metric for metric in shares if metric in shown]),
        ("Other scores on the evaluation questions", others),
        *((f"{name_of(whole)} by part", metrics) for whole, metrics in parts.items()),
    ]
    return [
        curve
        for title, metrics in groups
        for curve in _chart(
            title,
            [
                _score_line(taken, metric, PALETTE[place % len(PALETTE)], bounded=metric in shown)
                for place, metric in enumerate(metrics)
            ],
            course.step,
            unit=True,
        )
    ]


def _score_line(taken: Sequence[Point], metric: str, colour: str, *, bounded: bool) -> Line:
    having = [(point.step, score) for point in taken if (score := point.scores["metrics"].get(metric))]
    bounds = [(score["low"], score["high"]) for _, score in having if "low" in score]
    return Line(
        name_of(metric),
        [(float(step), score["value"]) for step, score in having],
        colour,
        bounds=bounds if bounded and len(bounds) == len(having) else (),
    )


def _iterations(content: Content) -> list[Curve]:
    def points(figure: str) -> Points:
        return [
            (float(phase.figures["iteration"]), float(phase.figures[figure]))
            for phase in content.iterations
            if isinstance(phase.figures.get(figure), (int, float))
        ]

    rewards = [
        Line("mean reward r̄ of the first pass", points("mean_reward"), "c-final"),
        Line("threshold K", points("threshold"), "c-threshold", stepped=True),
    ]
    loss = [Line("first step", points("loss_first"), "c-start"), Line("last step", points("loss_last"), "c-loss")]
    for place, role in enumerate(sorted({role for phase in content.iterations for role in _roles(phase)})):
        last = [
            (float(phase.figures["iteration"]), float(found))
            for phase in content.iterations
            if (found := _roles(phase).get(role, {}).get("loss_last")) is not None
        ]
        loss.append(Line(f"last step, {role}", last, PALETTE[place]))
    accepted = [Line("share of attempts accepted", points("acceptance_rate"), "c-other")]
    examples = [Line("dialogues trained on", points("examples"), "c-other")]
    return [
        *_chart("Reward and threshold", rewards, "iteration", unit=True),
        *_chart("Acceptance", accepted, "iteration", unit=True),
        *_chart("Training loss", loss, "iteration", unit=False),
        *_chart("Training examples", examples, "iteration", unit=False),
    ]


def _roles(phase: Phase) -> dict[str, dict[str, Any]]:
    """Return the figures of each model, if roles have separate models."""
    roles: dict[str, dict[str, Any]] = phase.figures.get("roles") or {}
    return roles


def _supervised(content: Content) -> list[Curve]:
    """Return the loss of each supervised phase that is not an iteration: a warm-up, a baseline."""
    found = []
    for phase in content.phases:
        if phase in content.iterations:
            continue
        trained = _roles(phase) or {"loss": phase.figures}
        lines = [
            (name, [(float(step["step"]), float(step["loss"])) for step in figures.get("curve") or []])
            for name, figures in trained.items()
        ]
        longer = [(name, points) for name, points in lines if len(points) > 1]
        found += _chart(f"Loss of {phase.name}", coloured(longer), "step", unit=False)
        found += _speeds(phase.name, trained)
    return found


def _speeds(name: str, trained: Mapping[str, Mapping[str, Any]]) -> list[Curve]:
    """Return charts of a training's speed: tokens per second, and for a known GPU the share of its peak."""

    def lines(figure: str) -> list[Line]:
        found = [
            (role, [(float(step["step"]), step["speed"][figure]) for step in figures.get("curve") or []
                    if figure in step.get("speed", {})])
            for role, figures in trained.items()
        ]  # fmt: skip
        return coloured([("training" if role == "loss" else role, points) for role, points in found if len(points) > 1])

    return [
        *_chart(f"Tokens per second of {name}", lines("tokens_per_second"), "step", unit=False),
        *_chart(f"Share of the GPU's peak in {name} (MFU)", lines("mfu"), "step", unit=True),
    ]


def _updates(content: Content) -> list[Curve]:
    found = []
    for phase in content.online:
        before = f"{phase.name}: " if len(content.online) > 1 else ""
        for title, lines, unit in _online(phase.updates):
            found += _chart(before + title, coloured(lines), "update", unit=unit)
    return found


def _online(updates: Sequence[Update]) -> list[tuple[str, list[tuple[str, Points]], bool]]:
    def points(value: Callable[[Update], float | None]) -> Points:
        return [(float(u.update), float(found)) for u in updates if (found := value(u)) is not None]

    def statistic(name: str) -> Points:
        return points(lambda update: update.statistics.get(name))

    trained = points(lambda update: update.mean_reward)
    named = {
        name: points(lambda update, name=name: update.rewards.get(name))  # type: ignore[misc]
        for name in dict.fromkeys(name for update in updates for name in update.rewards)
    }
    # The total reward is also among the named rewards; leave it out if it can be identified.
    same = [name for name, line in named.items() if line == trained]
    trained_for = "reward" if "reward" in same else same[0] if len(same) == 1 else None
    rewards = {"mean reward" if trained_for is None else f"{name_of(trained_for)} (trained for)": trained}
    rewards |= {name_of(name): line for name, line in named.items() if name != trained_for}
    shares = {name: line for name, line in rewards.items() if all(0 <= y <= 1 for _, y in line)}
    beyond = {name: line for name, line in rewards.items() if name not in shares}
    return [
        ("Rewards", list(shares.items()), True),
        ("Rewards on a scale of their own", list(beyond.items()), False),
        ("Loss", [("loss", points(lambda update: update.loss))], False),
        ("Divergence from the reference", [("KL", points(lambda update: update.kl))], False),
        (
            "What taught nothing, what was clipped",
            [
                ("groups without variance", points(lambda update: update.zero_variance)),
                ("tokens clipped", points(lambda update: update.clip_fraction)),
            ],
            True,
        ),
        ("Entropy of the policy, in nats per token", [("entropy", statistic("entropy"))], False),
        (
            "Ratio to the policy that sampled",
            [
                ("effective sample size, share of tokens", statistic("effective_sample_size")),
                ("tokens with a ratio above 2 or below 1/2", statistic("ratio_tail")),
                ("importance weights at their bound", statistic("importance_truncated")),
            ],
            True,
        ),
        (
            "Tokens of an update",
            [
                ("sampled", points(lambda update: update.tokens_sampled)),
                ("trained on", points(lambda update: update.tokens_trained)),
            ],
            False,
        ),
        (
            "Seconds of an update",
            [
                ("sampling", points(lambda update: update.sampling_seconds)),
                ("training", points(lambda update: update.training_seconds)),
                ("giving the engine the weights", points(lambda update: update.sync_seconds)),
            ],
            False,
        ),
        (
            "Tokens per second",
            [
                ("sampled", points(lambda update: update.sampled_per_second)),
                ("read in training", points(lambda update: update.speed.get("tokens_per_second"))),
            ],
            False,
        ),
        ("Share of the GPU's peak (MFU)", [("training", points(lambda update: update.speed.get("mfu")))], True),
    ]
