"""Launch of a method's sampling steps: in this process, in several, or by a runner on other machines.

A step is a record, the input of ``python -m platform_sdk.methods --spec FILE``. It holds the recipe's structs
unchanged; the method validates them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter, model_validator

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import PARALLEL, EngineSpec
from platform_sdk.errors import UserError
from platform_sdk.evaluation.evaluator import EvaluationResult
from platform_sdk.files import read_model
from platform_sdk.methods import steps
from platform_sdk.methods.context import Context
from platform_sdk.methods.method import AnyMethod, RunContext, load_method
from platform_sdk.methods.own_server import server_here, write_server
from platform_sdk.methods.steps import SampleOutcome
from platform_sdk.processes.environment import restrict_to_own_gpus, visible_gpus
from platform_sdk.processes.launch import ProcessRunner, StepProcesses, check_process_count, run_processes
from platform_sdk.processes.shares import process_group
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.load import refuse_pair
from platform_sdk.tracking.outcomes import digest_of, write_json
from platform_sdk.training.launch import processes_for

if TYPE_CHECKING:
    from platform_sdk.training.online.loop import OnlineResult

MODULE = "platform_sdk.methods"
T = TypeVar("T")


class MethodStep(Context, ABC, Generic[T]):
    """Arguments of a method's sampling step; ``T`` is its outcome.

    A step that ``trains`` needs GPU memory in addition to the sampler's.
    """

    trains: ClassVar[bool] = False
    kind: str
    phase: str
    model: str

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, values: Any) -> Any:
        """Read the steps of runs by earlier versions, which recorded ``searched_digest`` as ``corpus_digest``."""
        if isinstance(values, dict) and "corpus_digest" in values:
            values = {**values, "searched_digest": values["corpus_digest"]}
            del values["corpus_digest"]
        return values

    @property
    def folder(self) -> Path:
        return self.run_dir / self.phase

    @property
    def spec_file(self) -> Path:
        return self.folder / f"{self.kind}-step.json"

    @property
    def server_file(self) -> Path:
        return self.folder / f"{self.kind}-server.json"

    @property
    def engine(self) -> EngineSpec:
        return EngineSpec.model_validate(self.sampling.get("engine", {}))

    @property
    def loaded(self) -> AnyMethod:
        return load_method(self.method)

    @property
    def context(self) -> RunContext[Any]:
        """Return the run's checked context (see ``Method.context``)."""
        return self.loaded.context(self)

    @property
    def needs_model(self) -> bool:
        """Return False if the step never samples, in any run directory."""
        return True

    @property
    def asks_model(self) -> bool:
        """Return False if the step does not sample and therefore runs in the calling process."""
        return self.needs_model

    @abstractmethod
    def run(self) -> T:
        """Run the step in this process, or read the outcome of a finished step; return the outcome."""

    @abstractmethod
    def take_part(self) -> None:
        """Run the step's share in this process, one of the processes started for it."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Return True if the step has an outcome."""

    @abstractmethod
    def outcome(self) -> T:
        """Read the outcome that other processes wrote."""

    @abstractmethod
    def process_count(self, reserved: int) -> int | None:
        """Return how many processes to start on this machine; None if the calling one suffices.

        Args:
            reserved: GPUs of this machine that the step's vLLM server uses.
        """


class _SharedStep(MethodStep[T]):
    """A step whose processes share the questions (see ``processes.shares``), each with its own engine.

    ``OUTCOME`` is the step's result file in the phase's folder.
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

    def outcome(self) -> T:
        if not self.done:
            raise UserError(f"{self.folder / self.OUTCOME}: the step's processes have left none that is visible here")
        return self.run()

    def process_count(self, reserved: int) -> int | None:
        engine = self.engine
        on_gpus = engine.engine != "openai" and engine.device != "cpu"
        seen = len(visible_gpus()) if on_gpus else 0
        if seen and engine.gpus_each > seen:
            raise UserError(
                f"sampling.engine.extra: an engine takes {engine.gpus_each} GPUs, but torch sees {seen}; lower "
                f"{' or '.join(name for name in PARALLEL if name in engine.extra)}"
            )
        count = engine.processes or max(seen // engine.gpus_each, 1)
        if seen and count * engine.gpus_each > seen:
            each = f" of {engine.gpus_each} GPUs each" if engine.gpus_each > 1 else ""
            raise UserError(f"sampling.engine.processes: {count}{each}, but torch sees {seen} GPUs; lower it")
        return None if count == 1 else count


class SampleStep(_SharedStep[SampleOutcome]):
    """A round of a method's own sampling step.

    ``carry`` comes from the previous round; it is empty in the first round.
    """

    OUTCOME = steps.SAMPLE
    kind: Literal["sample"] = "sample"
    step: str
    iteration: int
    settings: dict[str, Any]
    carry: dict[str, Any]

    @property
    def needs_model(self) -> bool:
        own = steps.step_of(self.loaded, self.step)
        return own.asks_model(self.loaded.unchecked_context(self), own.settings.model_validate(self.settings))

    def run(self) -> SampleOutcome:
        own = steps.step_of(self.loaded, self.step)
        settings, carry = own.settings.model_validate(self.settings), own.carry.model_validate(self.carry)
        return steps.sample(
            self.loaded, self.context, self.step, self.phase, self.iteration, self.model, settings, carry
        )


class EvaluateStep(_SharedStep[EvaluationResult]):
    """Evaluation of a policy: its answers to the evaluation questions, and their scores."""

    OUTCOME = PhaseDir.scores
    kind: Literal["evaluate"] = "evaluate"
    evaluation: dict[str, Any]

    @property
    def settings_digest(self) -> str:
        """Return the digest of everything that affects the result; excludes the paths of the run and its policy."""
        settings = self.model_dump(mode="json", exclude={"run_dir", "model", "searched_digest"})
        return digest_of(settings | {"corpus_digest": self.searched_digest})  # the name that earlier versions digested

    @property
    def asks_model(self) -> bool:
        evaluation = self.loaded.evaluation_settings.model_validate(self.evaluation)
        return not steps.evaluated_before(self.loaded, self.context, self.phase, self.model, evaluation)

    def run(self) -> EvaluationResult:
        evaluation = self.loaded.evaluation_settings.model_validate(self.evaluation)
        return steps.evaluate(self.loaded, self.context, self.phase, self.model, evaluation)


class OnlineStep(MethodStep["OnlineResult"]):
    """Online training: the policy learns from its own samples."""

    trains: ClassVar[bool] = True
    kind: Literal["online"] = "online"
    online: OnlineSpec
    evaluation: dict[str, Any]

    def run(self) -> OnlineResult:
        evaluation = self.loaded.evaluation_settings.model_validate(self.evaluation)
        return steps.online(self.loaded, self.context, self.phase, self.model, self.online, evaluation)

    def take_part(self) -> None:
        self.run()

    @property
    def done(self) -> bool:
        return False  # an existing result may be of other inputs, which the training itself checks

    def outcome(self) -> OnlineResult:
        from platform_sdk.training.online.loop import OnlineResult

        return read_model(PhaseDir(self.folder).train, OnlineResult)

    def process_count(self, reserved: int) -> int | None:
        return processes_for(self.online, reserved)


AnyStep = Annotated[SampleStep | EvaluateStep | OnlineStep, Field(discriminator="kind")]
STEPS: TypeAdapter[AnyStep] = TypeAdapter(AnyStep)


def launch(step: MethodStep[T], runner: ProcessRunner | None = None) -> T:
    """Run a step by ``runner``, or in the number of processes that its settings and this machine allow.

    If the engine is a vLLM server without a url, a server is started: here as a child of this process, with a runner
    on each of its machines. The step is first written to ``<run_dir>/<phase>/<kind>-step.json``, for the other
    processes and for readers of the run (``finished``).

    Returns:
        The step's outcome.

    Raises:
        UserError: a setting does not fit the questions, the model or the machine, or a process or the server failed.
    """
    write_json(step.spec_file, step.model_dump(mode="json"))
    if step.done or not step.asks_model:
        return step.run()
    refuse_pair(step.engine, step.model)
    if step.trains and (fault := step.engine.beside_training_fault):
        raise UserError(f"sampling.engine.engine: {fault}")
    if runner is not None:
        loaded = step.loaded
        loaded.context(step)  # before a job waits for GPUs
        if step.engine.brings_server:
            write_server(step.server_file, step.model, step.engine)
        runner(step_processes(step))
        return step.outcome()
    with server_here(step.engine, step.server_file, step.model, trains=step.trains) as reserved:
        count = step.process_count(reserved)
        if count is None:
            return step.run()
        processes = step_processes(step)
        check_process_count(processes, count)
        run_processes(processes.module, processes.spec_file, count)
        return step.outcome()


def step_processes(step: MethodStep[Any]) -> StepProcesses:
    """Return the processes of a sampling step; nothing is written or read."""
    engine = step.engine
    return StepProcesses(
        MODULE,
        step.spec_file,
        step.kind,
        trains=step.trains,
        single_process_reason=step.loaded.single_process_reason(RetrievalSpec.model_validate(step.retrieval)),
        vllm=engine.engine == "vllm",
        gpus_each=engine.gpus_each if engine.engine == "vllm" else 1,
        server_spec=step.server_file if engine.brings_server else None,
        program=step.loaded.program_image(step.agent),
    )
