"""Online training of a policy: sample with the current weights, score, update, send the new weights to the engine.

A killed and resumed run gives the same rollouts and weights as an uninterrupted one, on a CPU with one thread bit for
bit. Checkpoints hold optimiser, schedule and random state; the questions follow from the number of the update; rollouts
sampled after the last checkpoint are reused if the weights are the same, and set aside otherwise.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from transformers import set_seed

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import PLACING, EngineSpec
from platform_sdk.processes.environment import is_main_process
from platform_sdk.record_files import digest_records
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.models import weights_digest
from platform_sdk.tracking.outcomes import digest_of, write_json
from platform_sdk.tracking.updates import read_updates
from platform_sdk.training.arguments import (
    check_memory,
    context_length,
    device_for,
    set_steps,
    threads,
    training_arguments,
)
from platform_sdk.training.attention import SHARING
from platform_sdk.training.masters import masters_of
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.online.groups import GroupSampler, OnlineTask
from platform_sdk.training.online.questions import check_mini_batches
from platform_sdk.training.online.recorder import Recorder
from platform_sdk.training.online.source import OnlineSource, OnUpdate
from platform_sdk.training.online.sync import sync_for
from platform_sdk.training.output import TrainedModel, completed, pass_through, read_back, write_model
from platform_sdk.training.policy import attention_for, load_policy
from platform_sdk.training.reference import current_policy, reference_for
from platform_sdk.training.trainer import PolicyTrainer

COUNTS = ("rollouts", "tokens_sampled", "tokens_trained", "truncated", "dropped")
SECONDS = ("sampling_seconds", "training_seconds", "sync_seconds")


class OnlineResult(TrainedModel):
    """Result of an online run. Counts and seconds are sums over its updates, which are in ``updates.jsonl``.

    ``reward_first`` and ``reward_last`` are the mean rewards of the first and last update, before the weights changed;
    ``skipped`` is the reason if nothing was trained.
    """

    weights: str
    parents: dict[str, str]
    skipped: str | None = None
    updates: int
    rollouts: int = 0
    tokens_sampled: int = 0
    tokens_trained: int = 0
    truncated: int = 0
    dropped: int = 0
    zero_variance: float = 0.0
    reward_first: float | None = None
    reward_last: float | None = None
    sampling_seconds: float = 0.0
    training_seconds: float = 0.0
    sync_seconds: float = 0.0


def train_online(
    spec: OnlineSpec,
    task: OnlineTask,
    model: str | Path,
    output: Path,
    *,
    engine: EngineSpec,
    seed: int,
    folder: Path,
    on_update: OnUpdate | None = None,
) -> OnlineResult:
    """Train ``model`` with ``spec.updates`` updates on its own samples, and write it to the directory ``output``.

    Under ``torchrun`` every process calls this with the same arguments, on a shared file system.

    Args:
        engine: the sampling engine. ``transformers`` shares the policy's weights in each process; ``openai`` is one
            server for all processes, or one in each pod of the job; ``vllm`` runs in each process.
        folder: directory of the phase, with ``rollouts/0001.jsonl``, …, ``updates.jsonl``, ``train.json`` (the result)
            and ``checkpoints`` during training. Its name enters the seeds.
        on_update: see ``OnlineSource``.

    Raises:
        UserError: a setting does not fit the task, the model or the machine.
        WeightsMismatch: the engine does not sample from the current weights.
        NotFinite: the loss became infinite or not a number.
    """
    if spec.updates and not task.questions:
        raise UserError(f"{folder}: there are no questions to learn from")
    check_mini_batches(spec, task.questions, seed)
    if spec.updates and spec.scale_logits and task.temperature == 0:
        raise UserError(
            "online.scale_logits divides logits by sampling.temperature, which is 0; set a temperature above 0"
        )
    folder.mkdir(parents=True, exist_ok=True)
    parent = weights_digest(model)
    inputs = _inputs(spec, task, parent, engine, seed, folder)
    result = completed(output, inputs, OnlineResult)
    if result is None and not spec.updates:
        result = OnlineResult(
            model=str(output), inputs=inputs, weights=parent, parents={"model": parent}, updates=0,
            skipped="updates is 0",
        )  # fmt: skip
        if is_main_process():
            pass_through(model, output, result)
    if result is None:
        with threads(spec.threads):
            result = _train(spec, task, model, output, engine, seed, folder, on_update, inputs, parent)
    if is_main_process():
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # left over if the process was killed here
        write_json(folder / "train.json", result.model_dump(mode="json"))
    return result


def _train(
    spec: OnlineSpec, task: OnlineTask, model: str | Path, output: Path, engine_spec: EngineSpec, seed: int,
    folder: Path, on_update: OnUpdate | None, inputs: str, parent: str,
) -> OnlineResult:  # fmt: skip
    device = device_for(spec)
    checkpoints = folder / "checkpoints"
    args = training_arguments(spec, checkpoints, seed, device)
    args.output_dir = str(checkpoints / f"{inputs[:16]}-{args.world_size}")
    set_steps(args, spec, spec.updates * spec.steps_each)
    # Within an update its sampling weights are no longer available: save checkpoints only after whole updates.
    args.save_steps = spec.checkpoint_steps * spec.steps_each
    check_memory(spec, model, args, reference=spec.beta > 0)
    set_seed(seed)  # a new adapter's weights are drawn
    attention = attention_for(spec, device)
    policy = load_policy(model, spec, attention=attention, device=str(args.device))
    temperature = task.temperature if spec.scale_logits else 1.0
    recomputes = spec.scale_logits or spec.engine_correction is not None
    reference = reference_for(model, policy, spec, str(args.device)) if spec.beta else None
    # The engine's threads are the trainer's: both work in this process, one after the other.
    unthreaded = engine_spec.model_copy(update={"threads": None})
    # On a failure the engine is closed first, so that concurrent requests to it end at once.
    with _beside(engine_spec) as pool, closing(load_engine(unthreaded, model)) as engine:
        sampler = GroupSampler(spec, task, engine, folder / "rollouts", folder.name, seed)
        sync = sync_for(engine_spec, engine, policy, folder / "weights")
        source = OnlineSource(
            spec, task.questions, task.credit, sampler, sync, pool=pool, length=context_length(spec, model),
            share_prompts=attention in SHARING, seed=seed, on_update=on_update,
            sampled_by=current_policy(policy, spec, device) if recomputes else None, temperature=temperature,
            stops=task.stops,
            turn_tokens=task.turn_tokens,
        )  # fmt: skip
        objective = GroupRelative.of(spec)
        trainer = PolicyTrainer(
            policy, args, source=source, objective=objective, reference=reference, temperature=temperature,
            entropy=True, callbacks=[Recorder(source, folder), *masters_of(spec, model)],
        )  # fmt: skip
        trainer.resume()
        if on_update is not None and spec.evaluate_every and spec.updates % spec.evaluate_every == 0:
            source.after(spec.updates)

    def describe(written: Path) -> OnlineResult:
        return _result(output, inputs, weights_digest(written), parent, folder)

    write_model(trainer, model, output, describe)
    return read_back(output, inputs, OnlineResult)


def _result(output: Path, inputs: str, weights: str, parent: str, folder: Path) -> OnlineResult:
    updates = read_updates(folder)
    return OnlineResult(
        model=str(output),
        inputs=inputs,
        weights=weights,
        parents={"model": parent},
        updates=len(updates),
        zero_variance=sum(update.zero_variance for update in updates) / len(updates),
        reward_first=updates[0].mean_reward,
        reward_last=updates[-1].mean_reward,
        **{name: sum(getattr(update, name) for update in updates) for name in COUNTS},
        **{name: round(sum(getattr(update, name) for update in updates), 3) for name in SECONDS},
    )


def _inputs(spec: OnlineSpec, task: OnlineTask, parent: str, engine: EngineSpec, seed: int, folder: Path) -> str:
    """Digest everything known here that affects rollouts and weights; agent and credit belong to the method."""
    return digest_of(
        spec.model_dump(mode="json", exclude={"checkpoint_steps", "processes", "evaluate_every"}),
        digest_records(task.questions),
        parent,
        engine.model_dump(mode="json", exclude={"live", "threads", *PLACING}),
        seed,
        folder.name,
        task.temperature,
    )


def _beside(spec: EngineSpec) -> AbstractContextManager[ThreadPoolExecutor | None]:
    """Return a thread for sampling from a server during training, or None for an engine in this process."""
    return ThreadPoolExecutor(1, "sampling") if spec.engine == "openai" else nullcontext()
