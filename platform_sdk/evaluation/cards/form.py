"""Card of a run's first step: the form values of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from platform_sdk.config.form import FormField
from platform_sdk.evaluation.cards.markdown import card, cell, plain, table

CHANGED = "✎"


def form_card(fields: Sequence[FormField], parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the values of the form, the allowed values and the descriptions.

    Args:
        fields: The recipe's form.
        parameters: The values of the run.
        defaults: The recipe's values.
    """
    changed = [field for field in fields if field.value_in(parameters) != field.value_in(defaults)]
    rows = []
    for field in fields:
        value = cell(_text(field.value_in(parameters)), 60)
        if field in changed:
            value = f"**{value}** {CHANGED} (recipe: {cell(_text(field.value_in(defaults)), 40)})"
        allowed = ", ".join(map(str, field.choices)) or field.bounds or "text"
        rows.append([f"{field.name[:2]} {cell(field.label)}", value, cell(allowed)])
    meanings = "\n".join(
        f"- {field.name[:2]}: {plain(field.description, 200)}. Setting: {plain(field.setting)}" for field in fields
    )
    sentence = f"{len(changed)} of {len(fields)} values differ from the recipe's ({CHANGED})."
    return card("Start values", sentence, table(["field", "value", "allowed"], rows), meanings)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
