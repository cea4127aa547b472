"""Export of a finished run's policy as a self-contained model directory, with a model card about its origin."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from platform_sdk.data.dataset import PreparedData
from platform_sdk.errors import UserError
from platform_sdk.files import make_folder, read_model, read_object, write_text
from platform_sdk.methods.finished import SPEC, FinishedRun
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.models import load_tokenizer, resolve, save_merged
from platform_sdk.sampling.pairs import model_files, models_of, policy_digest
from platform_sdk.tracking.listing import FINAL, START
from platform_sdk.tracking.opened import CARD

OURS = "training.json"
"""A file that training leaves in a model's directory for its own use."""


class _Metric(BaseModel):
    """Mean of a metric and its interval."""

    value: float
    low: float
    high: float


class _Scores(BaseModel):
    """The fields of an evaluation's ``scores.json`` that a card shows."""

    n: int
    shown: tuple[str, ...]
    metrics: dict[str, _Metric]


def export_model(run: FinishedRun, output: Path) -> list[Path]:
    """Write the policy's model directory, or one for each role of a pair, and a model card; return the directories.

    Each directory contains a whole model: weights (safetensors), configuration and tokenizer. An adapter is merged into
    its base, so that loading the model needs neither peft nor the base.

    Raises:
        UserError: ``output`` exists and is not empty, or the weights differ from the ones that the run evaluated.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: exists already; name a new directory, or remove it")
    if run.weights and policy_digest(run.policy) != run.weights:
        raise UserError(f"{run.policy}: holds other weights than the run evaluated; run the recipe again")
    roles = models_of(run.policy)
    card = _card(run, roles)  # before the model is copied, so that no model is left without its warnings
    written = [_write(path, output / role) for role, path in roles.items()] or [_write(run.policy, output)]
    write_text(output / CARD, card)
    return written


def _write(model: Path, target: Path) -> Path:
    make_folder(target)
    if (resolve(model) / "adapter_config.json").is_file():
        save_merged(model, target)
        load_tokenizer(model).save_pretrained(target)
        return target
    for file in model_files(model):
        if file.name != OURS:
            shutil.copyfile(file, target / file.name)
    return target


def _card(run: FinishedRun, roles: dict[str, Path]) -> str:
    recipe = run.opened.recipe
    given, step = recipe["parameters"], run.evaluated
    if step.phase != START:
        course = "trained by hopforge"
    elif (run.run_dir / FINAL / SPEC).is_file():
        course = "that training by hopforge began with"
    else:
        course = "that hopforge evaluated and did not train"
    header = {
        "base_model": given.get("model", ""), "library_name": "transformers", "pipeline_tag": "text-generation",
        "tags": ["hopforge", step.method, "question-answering", "retrieval"],
    }  # fmt: skip
    parts = [
        "---",
        *(f"{name}: {json.dumps(value)}" for name, value in header.items()),
        "---",
        f"# {recipe['name']}",
        "",
        *_warnings(run),
        *_description(run),
        f"A question-answering policy {course}, with the method `{step.method}` in the environment "
        f"`{step.environment}`. It speaks that method's prompts: `hopforge ask` runs the agent around it.",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        *_loading(roles),
        "```",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in _facts(run, given)),
        "",
        "## Scores",
        "",
        "In percent on the evaluation questions, with 95 % intervals; means of counts as they are.",
        "",
        *_scores(run),
        "",
        "## Lineage",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | `{value}` |" for name, value in _lineage(run)),
        "",
        "## Recipe",
        "",
        "```json",
        json.dumps(recipe, indent=1),
        "```",
        "",
    ]
    return "\n".join(parts)


def _warnings(run: FinishedRun) -> Iterator[str]:
    for report in run.opened.altered:
        yield f"> **Warning: altered.** {report}. Neither scores nor lineage below can be relied on."
        yield ""


def _description(run: FinishedRun) -> Iterator[str]:
    """Yield the run's description; for an evaluation of an altered run, it is the warning."""
    path = RunDir(run.run_dir).environment
    if path.is_file() and (text := str(read_object(path).get("description") or "")):
        yield f"> {' '.join(text.split())}"
        yield ""


def _loading(roles: dict[str, Path]) -> Iterator[str]:
    for role in roles or ("",):
        place = json.dumps(f"DIRECTORY/{role}".rstrip("/"))
        name = f"{role}_model" if role else "model"
        yield f"{name} = AutoModelForCausalLM.from_pretrained({place})"
        yield f"{name.replace('model', 'tokenizer')} = AutoTokenizer.from_pretrained({place})"


def _facts(run: FinishedRun, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    dataset = given.get("dataset", {})
    yield "base model", given.get("model", "–")
    if given.get("worker_model"):
        yield "workers' base model", given["worker_model"]
    yield "data", dataset.get("format", "–")
    counts = read_model(RunDir(run.run_dir).corpus_digests, PreparedData).counts
    yield "questions", f"{counts.get('train', '–')} to train, {counts.get('eval', '–')} to evaluate"
    yield "seed", run.evaluated.seed


def _scores(run: FinishedRun) -> Iterator[str]:
    """Write the scores up to the evaluation whose policy this is."""
    phases = (START,) if run.evaluated.phase == START else (START, FINAL)
    found = [(phase, RunDir(run.run_dir).phase(phase).scores) for phase in phases]
    scores = {phase: read_model(path, _Scores) for phase, path in found if path.is_file()}
    shown = list(dict.fromkeys(name for score in scores.values() for name in score.shown))
    yield f"| | {' | '.join(scores)} |"
    yield "|---" * (len(scores) + 1) + "|"
    for name in shown:
        cells = (score.metrics.get(name) for score in scores.values())
        yield f"| {name} | {' | '.join('–' if cell is None else _cell(cell) for cell in cells)} |"
    yield f"| questions | {' | '.join(str(score.n) for score in scores.values())} |"


def _cell(metric: _Metric) -> str:
    scale, digits = (1, 2) if metric.high > 1 else (100, 1)
    value, low, high = (f"{scale * part:.{digits}f}" for part in (metric.value, metric.low, metric.high))
    return f"{value} ({low} to {high})"


def _lineage(run: FinishedRun) -> Iterator[tuple[str, str]]:
    prepared = read_model(RunDir(run.run_dir).corpus_digests, PreparedData)
    if run.weights:
        yield "weights", run.weights
    yield "training questions", prepared.train
    yield "evaluation questions", prepared.eval
    yield "searched", run.evaluated.searched_digest
    for name, shown in (("recipe", "recipe"), ("git_commit", "commit of hopforge")):
        if value := run.opened.first(name):
            yield shown, value
    if run.opened.entries:
        yield "manifest's head", run.opened.entries[-1].head
