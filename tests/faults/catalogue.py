"""Deliberate faults: small patches of the library or manifests, each with the tests that should detect it first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIBRARY = "platform_sdk"


@dataclass(frozen=True)
class Fault:
    """One patch: ``old`` stands exactly once in ``file`` (below ``folder``) and becomes ``new``.

    ``tests`` are paths below tests/, separated by spaces: the quick tests of what the fault is in.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    folder: str = LIBRARY

    def apply(self, root: Path) -> None:
        """Patch the copy of the repository at ``root``.

        Raises:
            ValueError: the text to replace does not occur exactly once; the catalogue must follow the code.
        """
        path = root / self.folder / self.file
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"fault {self.name}: {self.old!r} occurs {count} times in {self.folder}/{self.file}, not once"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


OBJECTIVES = "training/test_objectives.py training/test_group_relative.py"
BATCHES = "training/test_batches.py training/test_objectives.py training/test_policy.py"
MYGO = "methods/mygo/test_selection.py methods/mygo/test_agent.py methods/mygo/test_phases.py"
ARENA = "methods/arena/test_agent.py methods/arena/test_rewards.py methods/arena/test_grammar.py"
SAMPLING = "sampling/test_transformers_engine.py"
SERVICE = "retrieval/service/test_service.py retrieval/service/test_hosting.py"

FAULTS = (
    # What is learned
    Fault(
        "mask dropped", "training/batches.py",
        "mask = gathered(lambda example: example.agent_mask, bool)",
        "mask = gathered(lambda example: (0,) + (1,) * (len(example.token_ids) - 1), bool)", BATCHES,
    ),
    Fault(
        "log-probability of the wrong position", "training/batches.py",
        "predicts = np.append(mask[1:], False)", "predicts = mask", BATCHES,
    ),
    Fault(
        "loss divided by the micro-batch's tokens", "training/objectives.py",
        "loss = total / (batch.step_tokens if", "loss = total / (len(batch.targets) if", OBJECTIVES,
    ),
    Fault(
        "loss divided by the micro-batch's examples", "training/objectives.py",
        "lengths[batch.example] / batch.step_examples", "lengths[batch.example] / len(lengths)", OBJECTIVES,
    ),
    Fault(
        "KL sign", "training/objectives.py",
        "loss = policy_loss + self.beta * kl", "loss = policy_loss - self.beta * kl", OBJECTIVES,
    ),
    Fault(
        "KL estimators k2 and k3 swapped", "training/objectives.py",
        'return d.square() / 2 if self.kl == "k2" else', 'return d.square() / 2 if self.kl == "k3" else', OBJECTIVES,
    ),
    Fault(
        "clip range sign", "training/objectives.py",
        "ratio.clamp(1 - low, 1 + high)", "ratio.clamp(1 + low, 1 - high)", OBJECTIVES,
    ),
    Fault(
        "clipped objective's maximum", "training/objectives.py",
        "torch.minimum(free, held)", "torch.maximum(free, held)", OBJECTIVES,
    ),
    Fault(
        "reference is the policy", "training/reference.py",
        "return _FrozenCopy(name, spec, device, bfloat16)", "return _AdapterStart(policy, bfloat16, {})",
        "training/test_reference.py",
    ),
    Fault(
        "infinite loss accepted", "training/trainer.py",
        "if not torch.isfinite(total):", "if False:", "training/test_run.py",
    ),
    Fault(
        "worker without advantage", "training/credit.py",
        'in (rollout.trajectories if self.spec.others == "shared" else [rollout.main])', "in [rollout.main]",
        "training/test_credit.py",
    ),
    Fault(
        "another role's dialogues", "training/examples.py",
        "if (role is None or trajectory.role == role) and", "if", "training/test_examples.py",
    ),
    Fault(
        "truncated at the wrong end", "training/examples.py",
        "token_ids=example.token_ids[:max_length]", "token_ids=example.token_ids[-max_length:]",
        "training/test_examples.py",
    ),
    Fault(
        "trajectory for scoring trained on", "records.py",
        'for trajectory in self.recorded if trajectory.use == "training")', "for trajectory in self.recorded)",
        "training/test_examples.py training/test_credit.py",
    ),
    Fault(
        "credit of another length accepted", "training/examples.py",
        "if len(values) != len(mask):", "if False:", "training/test_credit.py",
    ),
    Fault(
        "rollout counted twice", "training/examples.py",
        "if key in trajectories:", "if False:", "training/test_credit.py",
    ),
    Fault(
        "prepared group of other weights used", "training/online/preparation.py",
        "if sampled.get(record.question) == _sampled(record.rollouts)}", "}", "training/online/test_groups.py",
    ),
    Fault(
        "advantages not centred", "training/advantages.py",
        "return [reward - mean for", "return [reward for", "training/test_credit.py",
    ),
    Fault(
        "biased deviation", "training/advantages.py",
        "else stdev(rewards)", "else stdev([*rewards, fmean(rewards)])",
        "training/test_credit.py",
    ),
    Fault(
        "advantages over all groups", "training/online/source.py",
        "advantages = self._credit.update_advantages([group.learned for group in kept])",
        "advantages = [{k: v for k, v in self._credit.advantages([r for g in kept for r in g.learned]).items() "
        "if k.rollout in {r.id for r in group.learned}} for group in kept]",
        "training/online/test_loop.py",
    ),
    Fault(
        "the first mini-batch at every step", "training/online/source.py",
        "mini_batches[step % self._spec.mini_batches]", "mini_batches[0]", "training/online/test_loop.py",
    ),
    Fault(
        "temperature of the logits ignored", "training/logprobs.py",
        "return logits if temperature == 1 else logits.div_(temperature)", "return logits", "training/test_logprobs.py",
    ),
    Fault(
        "observation trained on", "sampling/dialogue.py",
        "self.mask += [0] * len(tokens)", "self.mask += [1] * len(tokens)",
        "sampling/test_dialogue.py methods/mygo/test_agent.py",
    ),
    Fault(
        "end token kept in the text", "sampling/dialogue.py",
        "            spoken.pop()\n", "            pass\n", "sampling/test_dialogue_ends.py methods/mygo/test_agent.py",
    ),
    # What is sampled
    Fault(
        "Mujica ignores the run's seed", "agents/speaker.py",
        "seed_of(self.seed, self.seed_name, question.id, attempt)",
        "seed_of(0, self.seed_name, question.id, attempt)", MYGO,
    ),
    Fault(
        "Mujica's attempt not in the seed", "agents/speaker.py",
        "seed_of(self.seed, self.seed_name, question.id, attempt)",
        "seed_of(self.seed, self.seed_name, question.id)", MYGO,
    ),
    Fault(
        "ARENA's attempt not in the seed", "agents/speaker.py",
        "seed_of(self.seed, self.seed_name, question.id, attempt)",
        "seed_of(self.seed, self.seed_name, question.id)", ARENA,
    ),
    Fault(
        "ARENA ignores the run's seed", "agents/speaker.py",
        "seed_of(self.seed, self.seed_name, question.id, attempt)",
        "seed_of(0, self.seed_name, question.id, attempt)", ARENA,
    ),
    Fault(
        "evaluation temperature ignored", "methods/method.py",
        "Decoding(evaluation.temperature, evaluation.top_p)", "Decoding(top_p=evaluation.top_p)", MYGO,
    ),
    Fault(
        "sampler's temperature ignored", "sampling/token_sampling.py",
        "logits[rows] / scale[:, None]", "logits[rows]", SAMPLING,
    ),
    Fault(
        "top-p off by one", "sampling/token_sampling.py",
        "(before >= mass * total)", "(before + ordered >= mass * total)", SAMPLING,
    ),
    Fault(
        "stop token not seen", "sampling/stopping.py",
        "if token_ids[-1] in self.ends:", "if token_ids[0] in self.ends:", SAMPLING,
    ),
    Fault(
        "future positions attended", "sampling/kv_attention.py",
        "torch.arange(context, device=last.device) > last[:, None]",
        "torch.arange(context, device=last.device) > last[:, None] + 1", SAMPLING,
    ),
    Fault(
        "cache shared across weights", "sampling/kv_slots.py",
        "self.length[:] = 0", "pass", "sampling/test_new_weights.py",
    ),
    Fault(
        "eval questions trained on", "methods/selection.py",
        'batch_of(run.questions("train")', 'batch_of(run.questions("eval")', MYGO,
    ),
    Fault(
        "warm-up on eval questions", "methods/mygo/sampling.py",
        'shuffled(run.questions("train")', 'shuffled(run.questions("eval")', MYGO,
    ),
    Fault(
        "passages shown in a closed book", "methods/arena/agent.py",
        'return question.context if self.environment == "distractor" else ()', "return question.context", ARENA,
    ),
    # What is selected and rewarded
    Fault(
        "threshold exclusive for attempts", "methods/selection.py",
        "rewards[attempt] >= threshold", "rewards[attempt] > threshold", MYGO,
    ),
    Fault(
        "threshold exclusive for selection", "methods/selection.py",
        "reward_of(rollout, self.reward) >= self.threshold", "reward_of(rollout, self.reward) > self.threshold", MYGO,
    ),
    Fault(
        "K is the maximum, not the midpoint", "methods/selection.py",
        "(mean_reward + PERFECT) / 2", "max(mean_reward, PERFECT)", MYGO,
    ),
    Fault(
        "first pass's mean ignored", "methods/selection.py",
        "threshold = raised_threshold(threshold, mean_reward, spec)",
        "threshold = raised_threshold(threshold, 0.0, spec)", MYGO,
    ),
    Fault(
        "warm-up trained with its worked examples", "methods/mygo/sampling.py",
        "language.undemonstrated(tokenizer, rollout) for rollout in right", "rollout for rollout in right", MYGO,
    ),
    Fault(
        "reward weights swapped", "methods/arena/rewards.py",
        "for name, weight in weights.items())}",
        "for name, weight in zip(weights, [*weights.values()][::-1], strict=True))}", ARENA,
    ),
    Fault(
        "format reward for text behind the answer", "methods/arena/grammar.py",
        "return not text.strip()", "return True", ARENA,
    ),
    Fault(
        "bonus without relevance", "methods/arena/rewards.py",
        '== accuracy == values["relevance"] == 1', "== accuracy == 1", ARENA,
    ),
    Fault(
        "gold passages numbered from 0", "methods/arena/rewards.py",
        "frozenset(place + 1 for place", "frozenset(place for place", ARENA,
    ),
    # Scores
    Fault(
        "EM without normalisation", "evaluation/answers.py",
        "text = normalised(prediction).text", "text = prediction", "evaluation/test_answers.py evaluation/metrics",
    ),
    Fault(
        "precision and recall swapped", "evaluation/answers.py",
        "precision = same / len(predicted)\n    recall = same / len(expected)",
        "recall = same / len(predicted)\n    precision = same / len(expected)",
        "evaluation/test_answers.py evaluation/metrics",
    ),
    Fault(
        "mean over questions that lack the metric", "evaluation/evaluator.py",
        "for id in ids) / len(ids)", "for id in ids) / len(per_question)", "evaluation/test_run.py",
    ),
    Fault(
        "interval of the wrong n", "evaluation/intervals.py",
        "seed, resamples)]) / len(matrix)", "seed, resamples)]) / (len(matrix) + 1)", "evaluation/test_intervals.py",
    ),
    Fault(
        "retrieval ties by -row", "retrieval/milvus.py",
        "np.lexsort((ties, -scores))", "np.lexsort((-ties, -scores))",
        "retrieval/test_search.py retrieval/test_milvus.py",
    ),
    # State, audit, service
    Fault("digest unchecked", "record_files.py", "if actual != digest:", "if not actual:", "test_records.py"),
    Fault("torn line kept", "files.py", "os.truncate(path, end)", "pass", "test_records.py tracking/test_journal.py"),
    Fault(
        "resume skips attempts", "sampling/sampler.py",
        "if number not in self.done.get(q.id, {})]", "if q.id not in self.done]",
        "sampling/test_sampler.py methods/mygo/test_phases.py",
    ),
    Fault(
        "rollouts of other weights mixed in", "sampling/sampler.py",
        "            if found != wanted:", "            if False:", "sampling/test_sampler.py",
    ),
    Fault(
        "older checkpoint used", "training/checkpoints.py",
        "found = {int(m[1]): path", "found = {-int(m[1]): path", "training/test_checkpoints.py",
    ),
    Fault(
        "update forgotten on resume", "tracking/updates.py",
        "if update.update <= last", "if update.update < last", "tracking/test_updates.py",
    ),
    Fault(
        "journal says things twice", "tracking/journal.py",
        "if event not in STATE_EVENTS and values.items() <= self._latest.items():", "if False:", "tracking",
    ),
    Fault(
        "alias goes back to an earlier model", "tracking/models.py",
        "if int(version.version) > int(now):", "if True:", "tracking/test_models.py",
    ),
    Fault(
        "model's scores without their dataset", "tracking/models.py",
        'known["digest"] == event["questions"]', "False", "tracking/test_models.py",
    ),
    Fault(
        "manifest chain not verified", "tracking/manifest.py",
        "if entry.previous != previous:", "if False:", "tracking/test_manifest.py",
    ),
    Fault(
        "altered manifest entry accepted", "tracking/manifest.py",
        'if entry.hash != digest_of(_body(entry)):', "if False:", "tracking/test_manifest.py",
    ),
    Fault(
        "outcome of other settings taken", "tracking/outcomes.py",
        'if outcome.get("inputs") != inputs:', "if False:", "tracking/test_outcomes.py",
    ),
    Fault(
        "token's prefix accepted", "retrieval/service/tokens.py",
        "hmac.compare_digest(known, token.encode())", "known.startswith(token.encode())",
        "retrieval/service/test_tokens.py",
    ),
    Fault(
        "another team's collection readable", "retrieval/service/collection.py",
        "return not self.spec.teams or team in self.spec.teams", "return True", SERVICE,
    ),
)  # fmt: skip
