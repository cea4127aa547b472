"""A finished run, opened again: its method, settings and policy, as its evaluations had them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import REMEDY, read_model
from platform_sdk.methods.launch import EvaluateStep
from platform_sdk.sampling.models import base_of
from platform_sdk.sampling.pairs import models_of
from platform_sdk.tracking.listing import FINAL, START
from platform_sdk.tracking.opened import OpenedRun, external_faults, open_run

SPEC = "evaluate-step.json"


@dataclass(frozen=True)
class FinishedRun:
    """Run that has finished successfully, and one of its evaluations: the last, or the one before training.

    ``weights`` is the digest of the policy that was evaluated, empty if the run was altered; the policy lies at
    ``evaluated.model``.
    """

    opened: OpenedRun
    evaluated: EvaluateStep
    weights: str

    @property
    def run_dir(self) -> Path:
        return self.opened.run_dir

    @property
    def policy(self) -> Path:
        return Path(self.evaluated.model)


def open_finished(
    run_dir: Path, *, before: bool = False, altered: bool | None = None, full: bool = False
) -> FinishedRun:
    """Open the directory of a finished run, wherever it lies now, after checking its files; see ``open_run``.

    Args:
        before: take the policy that training began with, as ``eval-start`` evaluated it.
        altered: also open a run with altered files.
        full: read every file again, also unchanged ones.

    Raises:
        UserError: it is not a run directory, the run has not finished, it has no evaluation, its weights are missing,
            or one of its files was altered.
    """
    opened = open_run(run_dir, altered=altered, full=full)
    opened.require_finished()
    # A pipeline that trains nothing has only the first evaluation.
    wanted = (START,) if before else (FINAL, START)
    phases = [phase for phase in wanted if opened.step(phase) or (run_dir / phase / SPEC).is_file()]
    if not phases or not (run_dir / phases[0] / SPEC).is_file():
        missing = run_dir / (phases or wanted)[0] / SPEC
        remedy = "it evaluated nothing, or an older hopforge made it; run its recipe again in a new --workdir"
        raise UserError(f"{missing}: there is no such file: {remedy}")
    path = run_dir / phases[0] / SPEC
    step = read_model(path, EvaluateStep)
    policy = Path(step.model)
    if policy.is_relative_to(step.run_dir):  # the run directory may have been moved
        policy = run_dir / policy.relative_to(step.run_dir)
    models = [*models_of(policy).values()] or [policy]
    missing_model = next((model for model in models if not model.is_dir()), None)
    if missing_model is not None:
        raise UserError(f"{missing_model}: the weights that {phases[0]} evaluated are missing; run the recipe again")
    faults = [*_settings_faults(opened, step, path), *(fault for one in models for fault in _faults(opened, one, path))]
    if faults and not altered:
        raise UserError(f"{faults[0]}; {REMEDY}")
    opened = replace(opened, altered=(*opened.altered, *faults))
    return FinishedRun(
        opened,
        step.model_copy(update={"run_dir": run_dir, "model": str(policy)}),
        "" if opened.altered else opened.recorded(phases[0], "policy"),
    )


def _settings_faults(opened: OpenedRun, step: EvaluateStep, path: Path) -> Iterator[str]:
    phase = path.parent.name
    if step.settings_digest != opened.recorded(phase, "settings"):
        yield f"{path}: was altered after step {phase}: its settings are not those recorded"


def _faults(opened: OpenedRun, model: Path, named_in: Path) -> Iterator[str]:
    """Yield why a model is not the run's: it neither left nor began with it, or files outside its directory differ."""
    if not opened.sealed_in(model):
        yield f"{named_in}: names {model}, which is no model of this run, so it was altered"
        return
    for folder in dict.fromkeys((model.resolve(), base_of(model).resolve())):
        if not folder.is_relative_to(opened.run_dir.resolve()):
            yield from external_faults(opened, folder)
