"""Starting a training or a sampling: in this process, in several that torch's launcher (the one behind ``torchrun``)
watches, or elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import OptimiserSpec, TrainSpec
from platform_sdk.files import read_model
from platform_sdk.sampling.pairs import models_of
from platform_sdk.tracking.outcomes import write_json

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    from platform_sdk.training.run import TrainResult


@dataclass(frozen=True)
class Work:
    """Processes that a step starts: ``python -m MODULE --spec FILE``, together one training or one sampling.

    Attributes:
        verb: what they do, in a word (``train``, ``sample``).
        trains: whether they train; else they only sample.
        vllm: whether they sample with vLLM in the processes themselves.
        gpus_each: GPUs of one process.
        alone: why there must not be more than one process, if so.
        served: specification of the vLLM server that is to stand beside them (``sampling.serve.Served``).
    """

    module: str
    spec_file: Path
    verb: str
    trains: bool = True
    vllm: bool = False
    gpus_each: int = 1
    alone: str | None = None
    served: Path | None = None


Elsewhere = Callable[[Work], None]
"""Runs the processes on other machines, and waits for them: a cluster's job."""

JOB = "job.json"
TAIL = 15
_TOLD = re.compile(r"(?:UserError|RecordError|ManifestError): (.*)", re.DOTALL)


class Job(BaseModel):
    """The arguments of ``steps.train_step``: what ``python -m platform_sdk.training --spec FILE`` reads.

    With a ``role`` only the dialogues of that role are learned (see ``pairs``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_dir: Path
    phase: str
    model: str
    selected: Path
    seed: int
    spec: TrainSpec
    role: str | None = None


def launch_training(job: Job, elsewhere: Elsewhere | None = None) -> TrainResult:
    """Train as ``job`` says: elsewhere, or on as many processes as its ``spec`` and this machine ask for.

    For other processes than this one the job is written to ``<run_dir>/<phase>/job.json`` first. A pair's models are
    trained one after the other (see ``pairs``).

    Raises:
        UserError: a setting does not fit the examples, the model or the machine, or a process failed.
    """
    from platform_sdk.training.run import TrainResult

    models = models_of(job.model)
    if models:
        from platform_sdk.training.pairs import launch_pair

        return launch_pair(job, models, elsewhere)
    processes = processes_for(job.spec) if elsewhere is None else None
    if processes is None and elsewhere is None:
        from platform_sdk.training.steps import train_step

        return train_step(job.run_dir, job.phase, job.model, job.selected, job.spec, job.seed, job.role)
    folder = job.run_dir / job.phase
    write_json(folder / JOB, job.model_dump(mode="json"))
    work = Work("platform_sdk.training", folder / JOB, "train")
    if elsewhere is not None:
        elsewhere(work)
    else:
        assert processes is not None
        run_processes(work.module, work.spec_file, processes)
    return read_model(folder / "train.json", TrainResult)


def refuse_several(work: Work, processes: int) -> None:
    """Raise a UserError where more processes are to be started than can do the work."""
    if processes > 1 and work.alone is not None:
        raise UserError(f"{work.verb}: {processes} processes, but {work.alone}")


def processes_for(spec: OptimiserSpec, reserved: int = 0) -> int | None:
    """How many processes to start for a training; None where the calling process does by itself.

    Args:
        reserved: GPUs of this machine that are for something else.

    Raises:
        UserError: there are more processes than GPUs.
    """
    seen = len(visible_gpus()) if spec.device != "cpu" else 0
    gpus = max(seen - reserved, 0)
    count = spec.processes or max(gpus, 1)
    if seen and count > gpus:
        kept = f", {reserved} of them for the step's own vLLM server" if reserved else ""
        raise UserError(
            f"processes: {count}, but torch sees {seen} GPUs{kept}; lower it, or leave it out for one on each"
        )
    # One process among several GPUs must be shown its one, and DeepSpeed works between processes only.
    return None if count == 1 and seen <= 1 and spec.deepspeed is None else count


def visible_gpus() -> list[str]:
    """This machine's GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in named.split(",")] if named else [str(number) for number in range(count)]
    return names[:count]


def run_processes(module: str, spec_file: Path, processes: int) -> None:
    """Run ``python -m MODULE --spec FILE`` as ``processes`` processes of one job, and wait for them.

    The same as ``python -m torch.distributed.run --standalone --nproc-per-node N -m MODULE --spec FILE``, but that the
    processes end when this one does, however it does. Their output goes to this one's, each line with its process's
    rank; beside the specification, in ``processes/``, it is kept if one of them fails.

    Args:
        module: Its ``__main__`` calls ``entry.entry``.
        spec_file: JSON file for the module.

    Raises:
        UserError: a process failed, and the others were ended; the message is the failed one's.
        KeyboardInterrupt: SIGINT or SIGTERM ended them.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logs = spec_file.parent / "processes"
    shutil.rmtree(logs, ignore_errors=True)  # of an earlier attempt
    logs.mkdir(parents=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=spec_file.stem,
        role="rank",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # any free port
        local_addr="localhost",  # else the machine's full name, which not every container can resolve
        max_restarts=0,  # going on from the last checkpoint is what running the step again does
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), tee=Std.ALL),
    )
    command = ["-u", "-m", module, "--spec", str(spec_file), "--launcher", str(os.getpid())]
    with _signals_given_back():
        try:
            elastic_launch(config, sys.executable)(*command)
        except ChildFailedError as error:
            raise UserError(_cause(error, processes, logs)) from None  # which holds every traceback once more
    shutil.rmtree(logs)


@contextmanager
def _signals_given_back() -> Iterator[None]:
    """Torch's launcher takes the signals that end a process for itself, and keeps them."""
    from torch.distributed.elastic.multiprocessing import SignalException

    taken = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in taken}
    try:
        yield
    except SignalException as stop:
        raise KeyboardInterrupt from stop
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _cause(error: ChildFailedError, processes: int, logs: Path) -> str:
    """What a process had to say to people, or else how each failed one ended, the first one first.

    A process often fails only because another one is gone, within the same moment: so nothing is left out, but those
    that the launcher ended.
    """
    failures = {rank: f for rank, f in error.failures.items() if f.exitcode != -signal.SIGTERM} or error.failures
    left = {rank: failure.error_file_data["message"] for rank, failure in failures.items()}
    for message in left.values():
        if isinstance(message, dict) and (told := _TOLD.match(message["message"])):
            return told[1]
    # Torch's times are whole seconds; of one second, what left no message was killed, and the others lost it.
    order = sorted(failures, key=lambda rank: (failures[rank].timestamp, isinstance(left[rank], dict), rank))
    return "\n".join(f"process {rank} of {processes}: {_end(failures[rank], logs)}" for rank in order)


def _end(failure: ProcessFailure, logs: Path) -> str:
    left = failure.error_file_data["message"]
    if isinstance(left, dict):  # by entry()
        return str(left["message"])
    how = f"ended by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with status {failure.exitcode}"
    lines = [line for path in logs.glob(f"*/attempt_0/{failure.local_rank}/stderr.log") for line in _last(path)]
    return f"{how}; its last lines:\n" + "\n".join(lines) if lines else f"{how}, and it wrote nothing"


def _last(path: Path) -> list[str]:
    return [f"  {line}" for line in path.read_text(errors="replace").splitlines() if line.strip()][-TAIL:]
