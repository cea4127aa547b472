"""Launch of a training step: in this process, in several processes, or by a runner on other machines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.config.training import OptimiserSpec, TrainSpec
from platform_sdk.files import read_model
from platform_sdk.processes.environment import visible_gpus
from platform_sdk.processes.launch import ProcessRunner, StepProcesses, run_processes
from platform_sdk.sampling.pairs import models_of
from platform_sdk.tracking.outcomes import write_json

if TYPE_CHECKING:
    from platform_sdk.training.run import TrainResult

SPEC_FILE = "train-step.json"


class TrainStep(Struct):
    """Arguments of ``steps.train_step``, the input of ``python -m platform_sdk.training --spec FILE``.

    With a ``role``, only the dialogues of this role are used (see ``pairs``).
    """

    run_dir: Path
    phase: str
    model: str
    selected: Path
    seed: int
    spec: TrainSpec
    role: str | None = None

    @property
    def folder(self) -> Path:
        return self.run_dir / self.phase


def launch_training(step: TrainStep, runner: ProcessRunner | None = None) -> TrainResult:
    """Train with ``runner``, or in the number of processes that ``spec`` and this machine determine.

    Each model of a pair is trained by a separate step in ``<run_dir>/<phase>/<role>`` (see ``pairs``). Before other
    processes start, the step is written to ``train-step.json`` in its folder.

    Raises:
        UserError: a setting does not fit the examples, the model or the machine, or a process failed.
    """
    models = models_of(step.model)
    if not models:
        return _launch(step, runner)
    from platform_sdk.training.pairs import join_pair

    results = {role: _launch(_of_role(step, role, str(model)), runner) for role, model in models.items()}
    return join_pair(step.model, step.folder, results)


def training_processes(step: TrainStep, roles: Iterable[str] = ()) -> list[StepProcesses]:
    """Return the processes of a training; of a pair of models, a training per role. Nothing is written or read."""
    return [_processes(one) for one in [_of_role(step, role, step.model) for role in roles] or [step]]


def _of_role(step: TrainStep, role: str, model: str) -> TrainStep:
    return step.model_copy(update={"run_dir": step.folder, "phase": role, "model": model, "role": role})


def _processes(step: TrainStep) -> StepProcesses:
    return StepProcesses("platform_sdk.training", step.folder / SPEC_FILE, "train")


def _launch(step: TrainStep, runner: ProcessRunner | None) -> TrainResult:
    from platform_sdk.training.run import TrainResult

    count = processes_for(step.spec) if runner is None else None
    if count is None and runner is None:
        from platform_sdk.training.steps import train_step

        return train_step(step.run_dir, step.phase, step.model, step.selected, step.spec, step.seed, step.role)
    processes = _processes(step)
    write_json(processes.spec_file, step.model_dump(mode="json"))
    if runner is not None:
        runner(processes)
    else:
        assert count is not None
        run_processes(processes.module, processes.spec_file, count)
    return read_model(step.folder / "train.json", TrainResult)


def processes_for(spec: OptimiserSpec, reserved: int = 0) -> int | None:
    """Return the number of processes to start for a training; None to train in the calling process.

    Args:
        reserved: number of GPUs of this machine reserved for other purposes.

    Raises:
        UserError: the setting has more processes than GPUs.
    """
    seen = len(visible_gpus()) if spec.device != "cpu" else 0
    gpus = max(seen - reserved, 0)
    count = spec.processes or max(gpus, 1)
    if seen and count > gpus:
        kept = f", {reserved} of them for the step's own vLLM server" if reserved else ""
        raise UserError(
            f"processes: {count}, but torch sees {seen} GPUs{kept}; lower it, or leave it out for one on each"
        )
    # A process on a machine with several GPUs needs CUDA_VISIBLE_DEVICES, and DeepSpeed needs a process group.
    return None if count == 1 and seen <= 1 and spec.deepspeed is None else count
