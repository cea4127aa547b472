"""Whole training runs, against an independent loop in plain PyTorch and against each other."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.sampling.models import load_model, load_tokenizer, weights_digest
from platform_sdk.training.batches import plan
from platform_sdk.training.examples import Example
from platform_sdk.training.run import TrainResult, train
from platform_sdk.training.trainer import NotFinite, PolicyTrainer

SPEC = TrainSpec(
    learning_rate=1e-2, minimum_learning_rate=1e-3, warmup_ratio=0.25, batch_size=6, micro_batch_tokens=1000,
    epochs=2, device="cpu", weight_decay=0.1, max_grad_norm=0.5,
)  # fmt: skip


def run(
    tmp_path: Path, model: Path, examples: list[Example], spec: TrainSpec, name: str = "a", seed: int = 5
) -> TrainResult:
    return train(spec, examples, model, tmp_path / name / "model", seed=seed, checkpoints=tmp_path / name / "ck")


def tensors(result: TrainResult) -> dict[str, torch.Tensor]:
    return load_file(Path(result.model) / "model.safetensors")


def assert_same_training(one: TrainResult, other: TrainResult, tolerance: float = 2e-4) -> None:
    assert [e.step for e in one.curve] == [e.step for e in other.curve]
    for mine, theirs in zip(one.curve, other.curve, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=tolerance)
        assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=10 * tolerance)
    for name, tensor in tensors(one).items():
        torch.testing.assert_close(tensor, tensors(other)[name], atol=tolerance, rtol=tolerance, msg=name)


def by_hand(path: Path, examples: list[Example], spec: TrainSpec, seed: int) -> tuple[list[float], torch.nn.Module]:
    """The same training without Trainer, packing or micro-batches: one dialogue after the other."""
    model = load_model(path, attention="eager")
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": others, "weight_decay": 0.0}], lr=0.0
    )
    steps = plan(
        examples, batch_size=spec.batch_size, micro_batch_tokens=10**6, epochs=spec.epochs, seed=seed
    )  # of the plan only which examples make a step is used
    warmup = round(spec.warmup_ratio * len(steps))
    losses = []
    for number, step in enumerate(steps):
        chosen = [examples[i] for micro in step.shares[0] for i in micro.examples]
        total = torch.zeros(())
        for example in chosen:
            logprobs = torch.log_softmax(model(input_ids=torch.tensor([example.token_ids])).logits[0], -1)
            total = total - sum(logprobs[j - 1, example.token_ids[j]] for j, m in enumerate(example.agent_mask) if m)
        tokens = sum(sum(example.agent_mask) for example in chosen)
        loss = total / (tokens if spec.normalization == "token" else len(chosen))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.max_grad_norm)
        if number < warmup:
            rate = spec.learning_rate * number / warmup
        else:
            progress = (number - warmup) / (len(steps) - warmup)
            low, high = spec.minimum_learning_rate, spec.learning_rate
            rate = low + (high - low) * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return losses, model


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_training_equals_a_plain_loop(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, normalization: str
) -> None:
    spec = SPEC.model_copy(update={"normalization": normalization, "micro_batch_tokens": 30})
    result = run(tmp_path, tiny_model, dialogues, spec)
    losses, model = by_hand(tiny_model, dialogues, spec, seed=5)
    assert [entry.loss for entry in result.curve] == pytest.approx(losses, rel=2e-4)
    expected = model.state_dict()
    for name, tensor in tensors(result).items():
        torch.testing.assert_close(tensor, expected[name], atol=5e-4, rtol=5e-3, msg=name)
    assert result.weights == weights_digest(Path(result.model)) != weights_digest(tiny_model)


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_the_division_into_micro_batches_changes_nothing(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, normalization: str
) -> None:
    spec = SPEC.model_copy(update={"normalization": normalization})
    whole = run(tmp_path, tiny_model, dialogues, spec)
    for limit in (1, 25, 60):
        parts = run(tmp_path, tiny_model, dialogues, spec.model_copy(update={"micro_batch_tokens": limit}), str(limit))
        assert_same_training(parts, whole)


@pytest.mark.parametrize(
    "change", [{"attention": "sdpa"}, {"attention": "eager"}, {"gradient_checkpointing": True}], ids=str
)
def test_attention_and_gradient_checkpointing_change_nothing(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, change: dict[str, object]
) -> None:
    assert_same_training(
        run(tmp_path, tiny_model, dialogues, SPEC.model_copy(update=change), "b"),
        run(tmp_path, tiny_model, dialogues, SPEC),
    )


def test_the_figures_of_a_run(tiny_model: Path, dialogues: list[Example], tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"max_length": 12})
    result = run(tmp_path, tiny_model, dialogues, spec)
    longer = [e for e in dialogues if len(e.token_ids) > 12]
    kept = [sum(e.agent_mask[:12]) for e in dialogues]
    assert result.truncated == len(longer) > 0
    assert result.tokens_cut == sum(len(e.token_ids) - 12 for e in longer)
    assert result.examples == sum(k > 0 for k in kept)
    assert result.dropped_empty == sum(k == 0 for k in kept)
    assert result.tokens_trained == 2 * sum(kept)
    assert result.tokens_total == 2 * sum(min(12, len(e.token_ids)) for e, k in zip(dialogues, kept, strict=True) if k)
    assert result.steps == len(result.curve) == 2 * math.ceil(result.examples / 6)
    assert (result.loss_first, result.loss_last) == (result.curve[0].loss, result.curve[-1].loss)
    assert result.loss_last < result.loss_first
    assert result.parents["model"] == weights_digest(tiny_model)
    assert load_tokenizer(result.model).get_vocab() == load_tokenizer(tiny_model).get_vocab()
    assert not (tmp_path / "a" / "ck").exists()


def test_a_finished_run_is_not_repeated_and_other_inputs_are_not_mistaken_for_it(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, tiny_model, dialogues, SPEC)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyTrainer, "train", None)
        assert run(tmp_path, tiny_model, dialogues, SPEC) == first
    other = run(tmp_path, tiny_model, dialogues, SPEC, seed=6)
    assert other.weights != first.weights
    assert weights_digest(other.model) == other.weights


def test_no_example_passes_the_model_through(tiny_model: Path, tmp_path: Path) -> None:
    result = run(tmp_path, tiny_model, [], SPEC)
    assert result.skipped == "no accepted trajectory"
    assert result.weights == weights_digest(tiny_model) == weights_digest(Path(result.model))
    assert (result.examples, result.steps, result.tokens_trained, result.curve) == (0, 0, 0, ())
    assert run(tmp_path, tiny_model, [], SPEC) == result


def test_lora_leaves_an_adapter_that_can_be_trained_on(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path
) -> None:
    spec = SPEC.model_copy(update={"lora": LoraSpec(rank=2)})
    first = run(tmp_path, tiny_model, dialogues, spec)
    assert (Path(first.model) / "adapter_model.safetensors").exists()
    assert first.weights == weights_digest(first.model) != weights_digest(tiny_model)
    assert first.loss_last < first.loss_first
    again = run(tmp_path, Path(first.model), dialogues, spec, "b", seed=7)
    assert again.curve[0].loss < first.curve[0].loss
    merged = load_model(again.model)
    base = load_model(tiny_model)
    assert any(not torch.equal(a, b) for a, b in zip(merged.parameters(), base.parameters(), strict=True))


def test_no_checkpoint_holds_training_args(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is left of pickles are optimiser, scheduler and RNG states, and torch reads them as data."""
    seen: list[Path] = []
    monkeypatch.setattr(
        "platform_sdk.training.trainer.discard_older", lambda folder: seen.extend(folder.glob("checkpoint-*/*"))
    )
    run(tmp_path, tiny_model, dialogues, SPEC.model_copy(update={"checkpoint_steps": 4, "epochs": 1}))
    names = {path.name for path in seen}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= names
    assert "training_args.bin" not in names


def test_a_loss_that_is_not_finite_stops_the_run(tiny_model: Path, dialogues: list[Example], tmp_path: Path) -> None:
    model = load_model(tiny_model)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(math.nan)
    model.save_pretrained(tmp_path / "nan")
    load_tokenizer(tiny_model).save_pretrained(tmp_path / "nan")
    with pytest.raises(NotFinite, match="step 1 is nan"):
        run(tmp_path, tmp_path / "nan", dialogues, SPEC)


def test_a_length_beyond_the_models_context_is_refused(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"max_length 65 exceeds the context .* 64"):
        run(tmp_path, tiny_model, dialogues, SPEC.model_copy(update={"max_length": 65}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_gpu_is_reported(tiny_model: Path, dialogues: list[Example], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torch sees no GPU"):
        run(tmp_path, tiny_model, dialogues, SPEC.model_copy(update={"device": "cuda"}))
