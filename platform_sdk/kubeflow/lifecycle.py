"""Begin and end of a run on a cluster, where its first and last step do what ``runs.execute`` does on one machine.

The first step takes the filled-in form, writes down what the run was really started with, and hands on the structs
that the form set fields of. Imported in steps, where kfp has only what a step needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.form import filled_in
from platform_sdk.config.parameter import Parameter
from platform_sdk.config.recipe import Recipe
from platform_sdk.kubeflow.claim import FILE, claim
from platform_sdk.kubeflow.component import received, sent
from platform_sdk.tracking import finish_run, start_run

STATES: dict[str, Literal["FINISHED", "KILLED"]] = {"SUCCEEDED": "FINISHED", "CANCELLED": "KILLED"}


def begun_with(recipe: Recipe) -> dict[str, Any]:
    """Return the parts of a recipe that ``begin_run`` needs: its values, and what the form sets of them."""
    checks = {"type", "description", "choices", "minimum", "maximum", "schema_"}
    return {
        **recipe.resolved(),
        "form": {field.name: ".".join(field.path) for field in recipe.form},
        "declared": {
            name: parameter.model_dump(mode="json", by_alias=True, include=checks, exclude_defaults=True)
            for name, parameter in recipe.run_time.items()
        },
    }


def begin_run(run_dir: str, recipe: dict[str, Any], filled: dict[str, Any]) -> dict[str, Any]:
    """Fill in the form, claim the run directory for the recipe with these values, and begin the run.

    Args:
        recipe: What ``begun_with`` gave.
        filled: The form's values by the names that Kubeflow has for them.

    Returns:
        The values of all parameters, as KFP's parameters can hold them.

    Raises:
        UserError: a value is not allowed; the directory holds a run of another recipe.
    """
    known = received(recipe)
    declared = {name: Parameter.model_validate(one) for name, one in known["declared"].items()}
    values = {known["form"][name]: value for name, value in received(filled).items()}
    parameters = filled_in(known["parameters"], declared, values)
    resolved = {"pipeline": known["pipeline"], "name": known["name"], "parameters": parameters}
    claim(Path(run_dir), resolved)
    start_run(Path(run_dir), resolved, follow=False)
    return {name: sent(value) for name, value in parameters.items()}


def end_run(run_dir: str, state: str) -> None:
    """End the run as its steps ended (KFP's ``SUCCEEDED``, ``FAILED`` or ``CANCELLED``).

    Raises:
        UserError: it was never begun, or MLflow could not be reached.
    """
    if not (Path(run_dir) / FILE).exists():
        raise UserError(f"{run_dir}: the run was never begun; see the log of the step begin")
    finish_run(Path(run_dir), STATES.get(state, "FAILED"))
