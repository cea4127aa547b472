"""Optimiser steps of an online run, built when the trainer requests them.

With ``mini_batches`` m and ``iterations`` μ, step i learns from mini-batch (i mod m·μ) mod m of update i div m·μ + 1.
A mini-batch is every m-th of the update's questions, which are in a random order, each with its whole group.

Nothing is built ahead, so the first step of an update is requested with the weights for sampling its rollouts; and a
resumed run, which requests no step before its checkpoint, samples nothing twice.

*Off policy*, an update's rollouts are sampled one update earlier: when an update is requested, its rollouts are ready,
and the next ones are sampled with the current weights, concurrently with training if the engine is a separate process.
Their log-probabilities belong to these weights, and the ratio ρ of the objective corrects for the difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

import torch
from accelerate import PartialState

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.processes.shares import wait_for_all
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.special_tokens import special_tokens
from platform_sdk.tracking.updates import Preparation
from platform_sdk.training.batches import Batch, pack, shared_step
from platform_sdk.training.credit import Credit, rewards_of, turn_credits
from platform_sdk.training.examples import Example, FittedExamples, examples_of, fit, truncated_examples
from platform_sdk.training.online.groups import Group, GroupSampler
from platform_sdk.training.online.questions import questions_of
from platform_sdk.training.online.sync import WeightSync
from platform_sdk.training.reference import Reference

OnUpdate = Callable[[int, SamplingEngine], None]


@dataclass(frozen=True)
class SampledUpdate:
    """An update's rollouts: this process's micro-batches of each mini-batch, and figures.

    ``reward`` is the name of the trained reward; see ``tracking.updates.Update`` for the rest.
    """

    update: int
    mini_batches: tuple[tuple[Batch, ...], ...]
    weights: str
    reward: str
    rewards: dict[str, float]
    zero_variance: float
    rollouts: int
    trajectories: int
    tokens_sampled: int
    agent_tokens: int
    truncated: int
    dropped: int
    masked: int
    replaced: int
    sampling_seconds: float
    sync_seconds: float
    preparation: Preparation | None


class OnlineSource:
    """Source of a ``PolicyTrainer``, see ``trainer.Source``.

    Args:
        pool: thread for sampling during training, if the engine is a separate process; None to sample sequentially.
        length: maximum number of tokens of an example.
        share_prompts: compute a group's prompt once, which requires packed attention.
        on_update: called on the main process with the number of an update and the engine with its weights, after every
            ``spec.evaluate_every``-th update.
        sampled_by: the current policy, for recomputing the log-probabilities of its samples; None to use the engine's,
            which are at temperature 1.
        temperature: temperature of ``sampled_by``.
        stops: strings that end a turn of the agent.
        turn_tokens: maximum tokens of a turn, if its stop strings are unknown; else None.
    """

    def __init__(
        self, spec: OnlineSpec, questions: Sequence[Question], credit: Credit, sampler: GroupSampler,
        sync: WeightSync, *,
        pool: Executor | None, length: int, share_prompts: bool, seed: int, on_update: OnUpdate | None,
        sampled_by: Reference | None, temperature: float, stops: Sequence[str] = (),
        turn_tokens: int | None = None,
    ) -> None:  # fmt: skip
        self._spec, self._questions, self._credit, self._sampler, self._sync = spec, questions, credit, sampler, sync
        self._length, self._seed, self._on_update = length, seed, on_update
        self._share_prompts, self._sampled_by, self._temperature = share_prompts, sampled_by, temperature
        self._pool, self._stops, self._turn_tokens = pool, stops, turn_tokens
        self._ahead: dict[int, Future[float]] = {}
        self._state = PartialState()
        self.current: SampledUpdate | None = None

    def __len__(self) -> int:
        return self._spec.updates * self._spec.steps_each

    def __getitem__(self, step: int) -> Sequence[Batch]:
        update = step // self._spec.steps_each + 1
        if self.current is None or self.current.update != update:
            # A resumed run may skip the draws made here for rollouts or an evaluation: restore the trainer's random
            # state afterwards.
            with torch.random.fork_rng():
                self.current = self._make(update)
        return self.current.mini_batches[step % self._spec.mini_batches]

    @property
    def steps_each(self) -> int:
        """Return the number of optimiser steps of an update."""
        return self._spec.steps_each

    def settle(self) -> None:
        """Wait for rollouts sampled ahead: a checkpoint needs them complete, since their weights are not saved."""
        for future in self._ahead.values():
            future.result()

    def after(self, update: int) -> tuple[str, float]:
        """Send an update's weights to the engine, and call ``on_update`` if it is due.

        Returns:
            The weights' version, and the seconds of sending them.
        """
        began = time.perf_counter()
        version = self._sync.refresh()
        seconds = time.perf_counter() - began
        every = self._spec.evaluate_every
        if self._on_update is not None and update and every and update % every == 0:
            if self._state.is_main_process:
                self._on_update(update, self._sync.engine)
            wait_for_all()
        return version, seconds

    def _make(self, update: int) -> SampledUpdate:
        ahead = self._ahead.pop(update, None)
        sampling_seconds = ahead.result() if ahead is not None else None
        version, sync_seconds = self.after(update - 1)
        questions = self._taken_up(update)
        if sampling_seconds is None:
            sampling_seconds = self._first(update, questions, version)
        if self._spec.off_policy and update < self._spec.updates:
            self._sample_ahead(update + 1, version)
        groups = self._sampler.gather(update, questions)
        return self._sampled(update, groups, sampling_seconds, sync_seconds)

    def _first(self, update: int, questions: Sequence[Question], version: str) -> float:
        """Sample now, unless a resumed off-policy run already has rollouts sampled ahead with the previous weights."""
        if self._spec.off_policy and update > 1 and self._sampler.whole(update, questions):
            return 0.0
        return self._sampler.sample(update, questions, version)

    def _sample_ahead(self, update: int, version: str) -> None:
        arguments = update, self._taken_up(update), version
        if self._pool is not None:
            self._ahead[update] = self._pool.submit(self._sampler.sample, *arguments)
            return
        done: Future[float] = Future()
        done.set_result(self._sampler.sample(*arguments))
        self._ahead[update] = done

    def _taken_up(self, update: int) -> list[Question]:
        return questions_of(self._spec, self._questions, update, self._seed)

    def _sampled(
        self, update: int, groups: Sequence[Group], sampling_seconds: float, sync_seconds: float
    ) -> SampledUpdate:
        first = [rollout for group in groups for rollout in group.first]
        everything = [rollout for group in groups for rollout in group.sampled]
        kept = self._kept(groups)
        learned = [rollout for group in kept for rollout in group.learned]
        rewards_of(learned, self._spec.reward)  # it is reported even if the credit uses other rewards
        advantages = self._credit.update_advantages([group.learned for group in kept])
        pairs = list(zip(kept, advantages, strict=True))
        credited = [examples_of(group.learned, own) for group, own in pairs]
        self._sampler.record_credit(update, [each for group, own in pairs for each in turn_credits(group.learned, own)])
        count = self._spec.mini_batches
        masked = self._truncated(learned)
        fitted = [self._fitted(update, credited[number::count], masked) for number in range(count)]
        return SampledUpdate(
            update=update,
            mini_batches=tuple(self._packed(examples, left_out) for examples, left_out in fitted),
            weights=first[0].weights,
            reward=self._spec.reward,
            rewards={
                name: _mean(first if name in first[0].rewards else learned, name)
                for name in sorted({*first[0].rewards, *(name for rollout in learned for name in rollout.rewards)})
            },
            zero_variance=sum(not self._credit.informative(group.learned) for group in groups) / len(groups),
            rollouts=len(everything),
            trajectories=sum(len(each.examples) for each, _ in fitted),
            tokens_sampled=sum(sum(t.agent_mask) for rollout in everything for t in rollout.trajectories),
            agent_tokens=sum(example.agent_tokens for each, _ in fitted for example in each.examples),
            truncated=sum(each.truncated for each, _ in fitted),
            dropped=sum(each.dropped_too_long + each.dropped_empty for each, _ in fitted),
            masked=sum(left_out for _, left_out in fitted),
            replaced=len(groups) - len(kept),
            sampling_seconds=sampling_seconds,
            sync_seconds=sync_seconds,
            preparation=self._preparation(groups),
        )

    def _kept(self, groups: Sequence[Group]) -> list[Group]:
        """Return the training groups: without replaced ones, unless a mini-batch would be empty."""
        kept = [group for group in groups if not group.replaced]
        missing = max(0, self._spec.mini_batches - len(kept))
        return kept + [group for group in groups if group.replaced][:missing]

    def _truncated(self, rollouts: Sequence[Rollout]) -> set[str]:
        """Return the ids of the examples to leave out since a token limit cut them off."""
        if not self._spec.mask_truncated:
            return set()
        engine = self._sync.engine
        limits = None if self._turn_tokens is None else (self._turn_tokens, engine.max_model_len)
        return truncated_examples(rollouts, special_tokens(engine.tokenizer), self._stops, limits)

    def _fitted(
        self, update: int, groups: Sequence[Sequence[Example]], masked: Container[str]
    ) -> tuple[FittedExamples, int]:
        """Return the examples of a mini-batch, and the number of masked ones."""
        examples = [example for group in groups for example in group]
        shown = [example for example in examples if example.id not in masked]
        fitted = fit(shown, self._length, self._spec.too_long)
        if not fitted.examples:
            ended = "; raise the agent's max_tokens, or unset mask_truncated" if len(shown) < len(examples) else ""
            raise UserError(
                f"update {update}: no trajectory of a mini-batch has credit and an agent's token within max_length "
                f"{self._length}{ended}"
            )
        return fitted, len(examples) - len(shown)

    def _packed(self, fitted: FittedExamples, masked: int) -> tuple[Batch, ...]:
        """Return this process's micro-batches of an optimiser step."""
        examples = fitted.examples
        step = shared_step(
            examples, self._state.num_processes, self._spec.micro_batch_tokens, self._share_prompts, masked
        )
        batches = [pack(examples, micro, step) for micro in step.shares[self._state.process_index]]
        if self._sampled_by is None:
            return tuple(batches)
        return tuple(
            replace(
                batch,
                old_logprobs=self._sampled_by.logprobs(batch, self._temperature),
                engine_logprobs=batch.old_logprobs,
            )
            for batch in (batch.to(self._state.device) for batch in batches)
        )

    def _preparation(self, groups: Sequence[Group]) -> Preparation | None:
        """Return the cost of preparation in all processes and this one's seconds; None if nothing is prepared."""
        prepared = [group.prepared for group in groups if group.prepared is not None]
        own = groups[self._state.process_index :: self._state.num_processes]  # approximate if questions were replaced
        if not prepared:
            return None
        return Preparation(
            requests=sum(each.requests for each in prepared),
            tokens=sum(each.tokens for each in prepared),
            seconds=round(sum(group.prepared.seconds for group in own if group.prepared is not None), 3),
        )


def _mean(rollouts: Sequence[Rollout], reward: str) -> float:
    values = [rollout.rewards[reward] for rollout in rollouts if reward in rollout.rewards]
    return sum(values) / len(values)
