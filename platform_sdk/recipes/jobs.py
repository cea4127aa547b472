"""The steps of a method that sample, as records: run in this process, in several, or as a cluster's job.

A record is what ``python -m platform_sdk.recipes --spec FILE`` reads. It holds the recipe's structs as they are; the
method's room knows what they mean.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.files import read_model
from platform_sdk.processes.environment import restrict_to_own_gpus, variables, visible_gpus
from platform_sdk.processes.launch import ProcessRunner, StepProcesses, check_process_count, run_processes
from platform_sdk.processes.shares import process_group
from platform_sdk.sampling.load import refuse_pair
from platform_sdk.sampling.local_server import local_server
from platform_sdk.sampling.serve import Served
from platform_sdk.tracking.outcomes import write_json
from platform_sdk.training.launch import processes_for

if TYPE_CHECKING:
    from platform_sdk.training.online.loop import OnlineResult

MODULE = "platform_sdk.recipes"


class MethodJob(BaseModel):
    """What every step that samples is told: a method, its setting, the phase and the policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    method: str
    run_dir: Path
    phase: str
    model: str
    environment: str
    agent: dict[str, Any]
    sampling: dict[str, Any]
    retrieval: dict[str, Any]
    corpus_digest: str
    seed: int

    @property
    def folder(self) -> Path:
        return self.run_dir / self.phase

    @property
    def engine(self) -> EngineSpec:
        """Every method's sampling settings have an engine."""
        return EngineSpec.model_validate(self.sampling.get("engine", {}))

    def setting(self) -> Any:
        """The method's own record of the setting."""
        return self._steps.Setting.read(
            self.run_dir, self.environment, self.agent, self.sampling, self.retrieval, self.corpus_digest, self.seed
        )

    @property
    def samples(self) -> bool:
        """Whether the model is asked for anything; else the step is done where it is."""
        return True

    @property
    def trains(self) -> bool:
        """Whether it needs memory of a GPU beside what samples."""
        return self.step == "online"

    @property
    def _steps(self) -> Any:
        return importlib.import_module(f"platform_sdk.recipes.{self.method}.steps")

    @property
    def _settings(self) -> Any:
        return importlib.import_module(f"platform_sdk.recipes.{self.method}.settings")

    @abstractmethod
    def run(self) -> Any:
        """Do the step in this process, or read its outcome where it is done; return it."""

    @abstractmethod
    def take_part(self) -> None:
        """Do the step in this process, one of those that were started for it."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether an outcome is there."""

    @abstractmethod
    def outcome(self) -> Any:
        """What other processes have left."""

    @abstractmethod
    def processes(self, reserved: int) -> int | None:
        """How many processes to start on this machine; None where the calling one does by itself.

        Args:
            reserved: GPUs of this machine that are the step's own server's.
        """


class SamplingJob(MethodJob):
    """A step whose processes share the questions (see ``processes.shares``), each with an engine of its own.

    ``OUTCOME`` is the file in the phase's folder that the step leaves.
    """

    OUTCOME: ClassVar[str]

    def take_part(self) -> None:
        if self.engine.engine != "openai" and self.engine.device != "cpu":
            restrict_to_own_gpus(self.engine.gpus_each)
        with process_group():
            self.run()

    @property
    def done(self) -> bool:
        return (self.folder / self.OUTCOME).exists()

    def outcome(self) -> Any:
        if not self.done:
            raise UserError(f"{self.folder / self.OUTCOME}: the step's processes have left none that is visible here")
        return self.run()

    def processes(self, reserved: int) -> int | None:
        engine = self.engine
        on_gpus = engine.engine != "openai" and engine.device != "cpu"
        seen = len(visible_gpus()) if on_gpus else 0
        count = engine.processes or max(seen // engine.gpus_each, 1)
        if seen and count * engine.gpus_each > seen:
            each = f" of {engine.gpus_each} GPUs each" if engine.gpus_each > 1 else ""
            raise UserError(f"sampling.engine.processes: {count}{each}, but torch sees {seen} GPUs; lower it")
        return None if count == 1 else count


class SampleJob(SamplingJob):
    """The rollouts of one phase. ``threshold`` is K that the last phase ended with; the warm-up has the initial one."""

    OUTCOME = "sample.json"
    step: Literal["sample"] = "sample"
    iteration: int
    threshold: float
    selection: dict[str, Any]
    warmup: dict[str, Any]

    def run(self) -> Any:
        selection = self._settings.SelectionSpec.model_validate(self.selection)
        warmup = self._settings.WarmupSpec.model_validate(self.warmup)
        threshold = self.threshold if self.iteration else selection.initial_threshold
        return self._steps.sample(self.setting(), self.phase, self.iteration, self.model, threshold, selection, warmup)


class EvaluateJob(SamplingJob):
    """A policy's answers to the evaluation questions, and their scores."""

    OUTCOME = "scores.json"
    step: Literal["evaluate"] = "evaluate"
    evaluation: dict[str, Any]

    def run(self) -> Any:
        evaluation = self._settings.EvaluationSpec.model_validate(self.evaluation)
        return self._steps.evaluate(self.setting(), self.phase, self.model, evaluation)


class DemonstrateJob(SamplingJob):
    """What a supervised baseline learns from."""

    OUTCOME = "demonstrations.json"
    step: Literal["demonstrate"] = "demonstrate"
    demonstrations: dict[str, Any]

    @property
    def samples(self) -> bool:
        return bool(self._steps.explains(self.setting()))

    def run(self) -> Any:
        spec = self._settings.DemonstrationSpec.model_validate(self.demonstrations)
        return self._steps.demonstrate(self.setting(), self.phase, self.model, spec)


class OnlineJob(MethodJob):
    """Training on what the policy itself samples."""

    step: Literal["online"] = "online"
    online: OnlineSpec
    evaluation: dict[str, Any]

    def run(self) -> OnlineResult:
        evaluation = self._settings.EvaluationSpec.model_validate(self.evaluation)
        result: OnlineResult = self._steps.online(self.setting(), self.phase, self.model, self.online, evaluation)
        return result

    def take_part(self) -> None:
        self.run()

    @property
    def done(self) -> bool:
        return False  # what is there may be of other inputs, as the training itself knows

    def outcome(self) -> OnlineResult:
        from platform_sdk.training.online.loop import OnlineResult

        return read_model(self.folder / "train.json", OnlineResult)

    def processes(self, reserved: int) -> int | None:
        return processes_for(self.online, reserved)


Job = Annotated[SampleJob | EvaluateJob | DemonstrateJob | OnlineJob, Field(discriminator="step")]
JOBS: TypeAdapter[Job] = TypeAdapter(Job)


def launch(job: MethodJob, runner: ProcessRunner | None = None) -> Any:
    """Do a step: by ``runner``, or in as many processes as its settings and this machine ask for; return its outcome.

    Where the engine is a vLLM server without a url, one is brought: on this machine a child of this process, by the
    runner one beside the processes of each machine. For other processes than this one the job is written to
    ``<run_dir>/<phase>/<step>-job.json`` first.

    Raises:
        UserError: a setting does not fit the questions, the model or the machine, or a process or the server failed.
    """
    if job.done or not job.samples:
        return job.run()
    refuse_pair(job.engine, job.model)
    if runner is not None:
        runner(_step_processes(job))
        return job.outcome()
    with _server_here(job) as reserved:
        count = job.processes(reserved)
        if count is None:
            return job.run()
        processes = _step_processes(job)
        check_process_count(processes, count)
        run_processes(processes.module, processes.spec_file, count)
        return job.outcome()


def _step_processes(job: MethodJob) -> StepProcesses:
    spec_file = job.folder / f"{job.step}-job.json"
    write_json(spec_file, job.model_dump(mode="json"))
    engine = job.engine
    return StepProcesses(
        MODULE,
        spec_file,
        job.step,
        trains=job.trains,
        single_process_reason=job.setting().alone,
        vllm=engine.engine == "vllm",
        gpus_each=engine.gpus_each if engine.engine == "vllm" else 1,
        server_spec=_served(job) if engine.brings_server else None,
    )


def _served(job: MethodJob, *, shares_gpu: bool = False) -> Path:
    path = job.folder / f"{job.step}-server.json"
    write_json(path, Served(model=job.model, engine=job.engine, shares_gpu=shares_gpu).model_dump(mode="json"))
    return path


@contextmanager
def _server_here(job: MethodJob) -> Iterator[int]:
    """The step's own server, if it brings one; how many of this machine's GPUs are its alone."""
    if not job.engine.brings_server:
        yield 0
        return
    gpus = visible_gpus()
    ours, its = split(gpus, job.engine.gpus)
    served = _served(job, shares_gpu=job.trains and ours == its != [])
    with local_server(served, its), variables({"CUDA_VISIBLE_DEVICES": ",".join(ours)} if gpus else {}):
        yield len(gpus) - len(ours)


def split(gpus: list[str], for_server: int | None) -> tuple[list[str], list[str]]:
    """The GPUs of a step's processes, and those of its server: the last ones, by default one.

    The only one there is is shared.

    Raises:
        UserError: the server would leave none to the processes.
    """
    if for_server is None and len(gpus) < 2:
        return gpus, gpus
    count = for_server or 1
    if count >= len(gpus):
        raise UserError(
            f"sampling.engine.gpus: {count}, but torch sees {len(gpus)} GPUs, and one at least is the step's own; "
            "lower it, or leave it out for one"
        )
    return gpus[:-count], gpus[-count:]
