"""Header facts of a report: recipe, data, time, hardware and cost."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from platform_sdk.evaluation.cards.figures import duration
from platform_sdk.evaluation.report.content import Content
from platform_sdk.evaluation.report.course import course_of


class Fact(NamedTuple):
    """A named value; ``title`` is the long form of a shortened one."""

    name: str
    value: str
    title: str = ""


def facts_of(content: Content) -> list[Fact]:
    """Return the facts that the run's files contain."""
    found = [Fact("run", content.run_dir.name), *parameters_of(content)]
    if content.chain:
        begun, ended = (datetime.fromisoformat(content.chain[place].time) for place in (0, -1))
        found += [
            Fact("started", f"{begun:%Y-%m-%d %H:%M} UTC"),
            Fact("duration", duration((ended - begun).total_seconds()), "from the start to the last finished step"),
        ]
    if hardware := content.environment.get("hardware"):
        found.append(Fact("hardware", str(hardware), "of the process that started the run"))
    if (verified := content.verified) is not None:
        result = verified.verification
        title = f"by hopforge verify, head {result.head or 'unknown'}"
        found.append(Fact("verified", f"{result.outcome}, {verified.time:%Y-%m-%d %H:%M:%S} UTC", title))
    return [*found, *_cost(content), *_origin(content)]


def parameters_of(content: Content) -> list[Fact]:
    """Return the recipe's models, data and seed."""
    parameters: dict[str, Any] = content.recipe.get("parameters", {})
    models = [
        Fact(name.replace("_", " "), value)
        for name, value in parameters.items()
        if (name == "model" or name.endswith("_model")) and isinstance(value, str) and value
    ]
    dataset, environment = parameters.get("dataset"), parameters.get("environment")
    formats = [dataset.get("format") or ""] if isinstance(dataset, dict) else []
    if isinstance(dataset, dict):
        formats += [str(part.get("format", "")) for part in dataset.get("mixture") or [] if isinstance(part, dict)]
    asked = [f"{content.evaluations[-1].scores['n']} evaluation questions"] if content.evaluations else []  # type: ignore[index]
    data = dict.fromkeys(part for part in (*formats, environment, *asked) if part)
    seed = [Fact("seed", str(parameters["seed"]))] if "seed" in parameters else []
    return [*models, *([Fact("data", ", ".join(data))] if data else []), *seed]


def _cost(content: Content) -> list[Fact]:
    spent = course_of(content).spent
    if not spent.seconds and not spent.tokens_sampled:
        return []
    per_second = f" ({spent.tokens_sampled / spent.sampling_seconds:,.0f} a second)" if spent.sampling_seconds else ""
    trained = f"{spent.tokens_trained:,} trained on"
    title = "Without evaluations and the start of engines; what two processes do at a time counts twice."
    return [
        Fact("cost", f"{duration(spent.seconds)} of sampling and training", title),
        Fact("tokens", f"{spent.tokens_sampled:,} sampled{per_second}, {trained}"),
    ]


def _origin(content: Content) -> list[Fact]:
    found = [Fact("iterations", str(len(content.iterations)))] if content.iterations or not content.online else []
    found += [
        Fact("updates" if len(content.online) == 1 else f"updates, {phase.name}", str(len(phase.updates)))
        for phase in content.online
    ]
    if content.environment:
        commit = str(content.environment.get("commit") or "unknown")
        changed = ", with changes that were not committed" if content.environment.get("dirty") else ""
        found.append(Fact("commit", commit[:10] + changed, commit))
    return found
