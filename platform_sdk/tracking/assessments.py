"""Rewards of rollouts and gold answers as assessments of MLflow traces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.tracking.findings import Finding

if TYPE_CHECKING:
    from platform_sdk.records import Rollout

ANSWERS = "expected_answers"
"""Name of the expectation with a question's gold answers."""
CODE, JUDGE, HUMAN = "CODE", "LLM_JUDGE", "HUMAN"
ID_LENGTH = 32


class RewardSources(Struct):
    """Sources of rewards by the rewards' names; all others are computed by the code of ``method``.

    Attributes:
        method: the method's name.
        judges: models of judges.
        functions: functions of the recipe, ``module:function``.
    """

    method: str
    judges: dict[str, str] = Field(default_factory=dict)
    functions: dict[str, str] = Field(default_factory=dict)


def assessments_of(rollout: Rollout, trace_id: str, time: int, sources: RewardSources) -> list[Any]:
    """Return a rollout's rewards as feedback and its gold answers as an expectation, for one trace.

    Ids follow from the trace and the name, so a repeated delivery adds no duplicate.

    Args:
        time: Milliseconds since the epoch.
    """
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    common: dict[str, Any] = {"trace_id": trace_id, "create_time_ms": time, "last_update_time_ms": time}
    found: list[Any] = []
    for name, value in rollout.rewards.items():
        code = sources.functions.get(name, f"hopforge/{sources.method}")
        kind, origin = (JUDGE, sources.judges[name]) if name in sources.judges else (CODE, code)
        found.append(Feedback(name=name, value=value, source=AssessmentSource(kind, origin), **common))
    if rollout.question.answers:
        source = AssessmentSource(CODE, f"dataset {rollout.question.dataset}".strip())
        found.append(Expectation(name=ANSWERS, value=list(rollout.question.answers), source=source, **common))
    for assessment in found:
        digest = hashlib.sha256(f"{trace_id}/{assessment.name}".encode()).hexdigest()
        assessment.assessment_id = f"a-{digest[:ID_LENGTH]}"
    return found


def compare_assessments(label: str, expected: list[Any], found: list[Any]) -> Iterator[Finding]:
    """Compare the assessments of a trace; people may add their own, but not replace the recorded ones."""
    stored: dict[str, Any] = {one.assessment_id: one for one in found}
    for one in expected:
        thing = f"{label}: assessment {one.name}"
        other = stored.pop(one.assessment_id, None)
        if other is None:
            yield Finding(thing=thing, kind="missing", expected=_shown(one))
        elif _content(one) != _content(other):
            yield Finding(thing=thing, kind="altered", expected=_shown(one), found=_shown(other))
    for other in stored.values():
        if other.source.source_type != HUMAN or other.overrides:
            yield Finding(thing=f"{label}: assessment {other.name}", kind="added", found=_shown(other))


def _content(assessment: Any) -> Mapping[str, Any]:
    """Return the compared fields of an assessment; MLflow stores further ones for its own use."""
    source = assessment.source
    valid = assessment.valid is not False  # an expectation has none
    return {
        "name": assessment.name, "value": _value(assessment), "source": (source.source_type, source.source_id),
        "kind": "expectation" if assessment.expectation is not None else "feedback", "valid": valid,
        "rationale": assessment.rationale or None, "span": assessment.span_id or None,
        "created": assessment.create_time_ms, "updated": assessment.last_update_time_ms,
        "metadata": assessment.metadata or None, "overrides": assessment.overrides or None,
    }  # fmt: skip


def _value(assessment: Any) -> Any:
    part = assessment.expectation if assessment.expectation is not None else assessment.feedback
    return None if part is None else part.value


def _shown(assessment: Any) -> str:
    source = assessment.source
    overridden = "" if assessment.valid is not False else ", overridden"
    return f"{_value(assessment)} by {source.source_type} {source.source_id}{overridden}"
