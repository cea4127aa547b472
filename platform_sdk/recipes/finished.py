"""A finished run, opened again: its method, settings and policy, as its evaluations had them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import REMEDY, read_model
from platform_sdk.recipes.launch import EvaluateStep
from platform_sdk.sampling.pairs import models_of
from platform_sdk.tracking.journal import DIGEST, STATE_EVENTS, read, run_file, step_file
from platform_sdk.tracking.listing import FINAL, RECIPE, START

SPEC = "evaluate-step.json"


@dataclass(frozen=True)
class FinishedRun:
    """Run that has finished successfully, and one of its evaluations: the last, or the one before training.

    ``weights`` is the digest of the policy that was evaluated; the policy lies at ``evaluated.model``.
    """

    run_dir: Path
    evaluated: EvaluateStep
    weights: str

    @property
    def policy(self) -> Path:
        return Path(self.evaluated.model)


def open_finished(run_dir: Path, *, before: bool = False) -> FinishedRun:
    """Open a run directory, wherever it lies now.

    Args:
        before: take the policy that training began with, as ``eval-start`` evaluated it.

    Raises:
        UserError: it is not a run directory, the run has not finished, it evaluated nothing, or its weights are gone.
    """
    if not (run_dir / RECIPE).is_file():
        raise UserError(f"{run_dir}: not a run directory (it holds no {RECIPE})")
    journal = run_file(run_dir)
    states = [event for event in read(journal)[0] if event["event"] in STATE_EVENTS] if journal.is_file() else []
    if not states or states[-1].get("status") != "FINISHED":
        raise UserError(f"{run_dir}: the run has not finished; repeat its hopforge run to resume it, then ask again")
    # A pipeline that trains nothing has only the first evaluation.
    phases = [phase for phase in ((START,) if before else (FINAL, START)) if (run_dir / phase / SPEC).is_file()]
    if not phases:
        remedy = "it evaluated nothing, or an older hopforge made it; run its recipe again in a new --workdir"
        raise UserError(f"{run_dir / (START if before else FINAL) / SPEC}: there is no such file: {remedy}")
    path = run_dir / phases[0] / SPEC
    step = read_model(path, EvaluateStep)
    recorded = _recorded(run_dir, phases[0], "settings")
    if recorded and step.settings_digest != recorded:
        raise UserError(f"{path}: was altered after step {phases[0]}: its settings are not those recorded; {REMEDY}")
    policy = Path(step.model)
    if policy.is_relative_to(step.run_dir):  # the run directory may have been moved
        policy = run_dir / policy.relative_to(step.run_dir)
    missing = next((path for path in models_of(policy).values() or [policy] if not path.is_dir()), None)
    if missing is not None:
        raise UserError(f"{missing}: the weights that {phases[0]} evaluated are missing; run the recipe again")
    return FinishedRun(
        run_dir,
        step.model_copy(update={"run_dir": run_dir, "model": str(policy)}),
        _recorded(run_dir, phases[0], "policy"),
    )


def _recorded(run_dir: Path, phase: str, name: str) -> str:
    """Return a digest that a phase's step recorded; empty if it did not, as of older runs."""
    tags = [event["tags"] for event in read(step_file(run_dir, phase))[0] if event["event"] == "tags"]
    found = [one[tag] for one in tags if (tag := f"{DIGEST}{name}") in one]
    return str(found[-1]) if found else ""
