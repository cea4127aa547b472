"""Cards of the Kubeflow UI: their figures, and that they fit its panel of 475 pixels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from platform_sdk.config.form import FormField
from platform_sdk.config.recipe import load_recipe
from platform_sdk.evaluation.cards import (
    collection_card,
    data_card,
    failure_card,
    form_card,
    iterations_card,
    metric_values,
    model_card_text,
    rollouts_card,
    scores_card,
    selection_card,
    training_card,
)
from platform_sdk.evaluation.cards.figures import count_metrics
from platform_sdk.evaluation.report import build_summary
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Passage, Question
from tests.evaluation.test_report import HOSTILE, make_run
from tests.tracking.rollouts import rollout

HOME = Path(__file__).parents[2]
PANEL = 475
# The UI's own style: no padding in tables. The font of tables is the browser's, larger than the UI's.
STYLE = f"body {{ margin: 0; width: {PANEL}px; font: 13px sans-serif }} td, th {{ padding: 0 }}"
LONG_NAME = "a_name_without_any_space_that_is_much_longer_than_the_panel_is_wide_" * 2

SCORES: dict[str, Any] = {
    "phase": "eval-final",
    "n": 200,
    "attempts": 2,
    "shown": ["em", "em_greedy", "f1"],
    "metrics": {
        "em": {"value": 0.505, "low": 0.435, "high": 0.57, "n": 200},
        "em_greedy": {"value": 0.53456, "low": 0.465, "high": 0.605, "n": 200},
        "f1": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 200},
        "turns": {"value": 2.934, "low": 2.7, "high": 3.2, "n": 200},
    },
    "per_question": {},
}
FIGURES: dict[str, Any] = {
    "phase": "iteration-02", "iteration": 2, "rollouts": 1040, "selected": 12, "mean_reward": 0.45678, "wanted": None,
    "well_formed": 0.975, "sampling_seconds": 200.0, "attempts_histogram": {"1": 4, "6": 6},
}  # fmt: skip
TRAINED = {"loss_first": 0.75, "loss_last": 0.25, "examples": 46, "tokens_trained": 2958, "training_seconds": 40.0}


def corpus(folder: Path) -> Path:
    """A corpus of hostile and long texts."""
    folder.mkdir()
    questions = [
        Question(id=f"q{n}", text=f"Who is {LONG_NAME} {HOSTILE} number {n}?", answers=(LONG_NAME,), dataset="d")
        for n in range(5)
    ]
    write_jsonl(folder / "questions.train.jsonl", Question, questions)
    write_jsonl(folder / "passages.jsonl", Passage, [Passage(id="p", title=LONG_NAME, text=f"{LONG_NAME} {HOSTILE}")])
    counts = {"train": 5, "eval": 0, "passages": 1, "triples": 0, "skipped": 2}
    digests = {"train": "a" * 64, "eval": "b" * 64, "passages": "c" * 64, "triples": "d" * 64}
    (folder / "digests.json").write_text(json.dumps({**digests, "counts": counts}))
    return folder


def plain_lines(card: str) -> list[str]:
    return card.replace("&nbsp;", "").replace("\u200b", "").splitlines()


def cards(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every card with long and hostile texts, by its name."""
    for recipe in (load_recipe(path) for path in sorted(HOME.glob("pipelines/*/world.yaml"))):
        yield f"form of {recipe.name}", form_card(recipe.form, recipe.parameters, recipe.parameters)
    real = load_recipe(HOME / "pipelines/evipath/hotpot-llama3.1-8b.yaml")
    changed = {**real.parameters, "dataset": {**real.parameters["dataset"], "train": [LONG_NAME]}}
    yield "form of files", form_card(real.form, changed, real.parameters)
    yield "data", data_card(corpus(folder / "corpus").parent)
    yield "model", model_card_text(f"{LONG_NAME}{HOSTILE}", folder, "e" * 64, {"selected_rollouts": "f" * 64})
    index = {"method": "triples", "collection": LONG_NAME, "rows": 307, "added": 0}
    yield "index", collection_card({**index, "corpus_digest": "a" * 64, "encoder_digest": "b" * 64})
    yield "scores", scores_card(SCORES)
    yield "selection", selection_card(FIGURES)
    yield "rollouts", rollouts_card("warmup", [rollout(n, hostile=HOSTILE + LONG_NAME) for n in range(3)])
    yield "training", training_card("warmup", TRAINED)
    rows = [{**FIGURES, **TRAINED, "iteration": n, "em": 0.5, "sampling_seconds": 98765.4} for n in range(1, 21)]
    yield "iterations", iterations_card(rows)
    yield "failure", failure_card("sample-02", f"{LONG_NAME} {HOSTILE}\nFirst remedy: {LONG_NAME}\n" + "more\n" * 50)
    yield "summary", build_summary(make_run(folder, hostile=HOSTILE))


def test_every_card_fits_the_panel_and_keeps_hostile_text_out_of_its_markup(open_page: Any, tmp_path: Path) -> None:
    render = MarkdownIt("commonmark", {"html": True}).enable("table").render
    page = open_page(f"<!doctype html><style>{STYLE}</style>")
    for name, card in cards(tmp_path):
        html = render(card)
        assert "<script" not in html, name
        assert "<img" not in html, name
        page.evaluate("html => { document.body.innerHTML = html }", html)
        width = page.evaluate(
            "Math.max(...[...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().right))"
        )
        assert width <= PANEL, f"{name} is {width} pixels wide"
        heads = page.evaluate("[...document.querySelectorAll('tr')].map(row => row.cells.length)")
        assert max(heads, default=0) <= 5, name
        assert card.startswith("## "), name
        assert len(card) < 8_000, name


def test_form_card_marks_the_values_that_differ_from_the_recipes() -> None:
    recipe = load_recipe(HOME / "pipelines/mygo/world.yaml")
    lines = plain_lines(form_card(recipe.form, {**recipe.parameters, "iterations": 2}, recipe.parameters))
    assert lines[2] == "1 of 8 values differ from the recipe's (✎)."
    assert "| c1 iterations | **2** ✎ (recipe: 3) | at least 0, at most 130 |" in lines
    assert "| d1 learning rate | 0.001 | at least 1e-12, at most 10 |" in lines
    assert any(line.startswith("- c4: ") and line.endswith("Setting: selection.accepted") for line in lines)


def test_form_card_lists_the_choices_of_a_field() -> None:
    field = FormField(
        name="d1_training_kl", path=("kl",), type="string", group="training", label="kl", description="an estimator",
        choices=("k1", "k2"), bounds="",
    )  # fmt: skip
    assert "| d1 kl | k2 | k1, k2 |" in plain_lines(form_card([field], {"kl": "k2"}, {"kl": "k2"}))


def test_data_card_has_counts_digests_and_first_records(tmp_path: Path) -> None:
    lines = plain_lines(data_card(corpus(tmp_path / "corpus").parent))
    assert lines[2].endswith("2 malformed records were left out.")
    assert "| training questions | 5 | `aaaaaaaaaaaa` |" in lines
    assert not any("triples" in line for line in lines)
    assert sum(line.startswith("| Who is") for line in lines) == 3


def test_model_card_counts_the_parameters_in_the_files(tmp_path: Path) -> None:
    header = json.dumps(
        {"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [1000, 250], "data_offsets": [0, 0]}}
    )
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode())
    lines = plain_lines(model_card_text("iteration-01", tmp_path, "e" * 64, {"model": "d" * 64}))
    assert lines[0] == "## Model: iteration-01"
    assert lines[-3:] == [
        "| parameters | 0.25 million |",
        "| weights | `eeeeeeeeeeee` |",
        "| from model | `dddddddddddd` |",
    ]


def test_scores_card_has_shares_in_per_cent_with_intervals() -> None:
    lines = plain_lines(scores_card(SCORES))
    assert lines[2].startswith("200 questions, each sampled once and answered greedily.")
    assert lines[4:] == [
        "| metric | score | 95 % interval |",
        "| --- | ---: | ---: |",
        "| EM | 50.5 | 43.5 to 57.0 |",
        "| EM greedy | 53.5 | 46.5 to 60.5 |",
        "| F1 | 50.0 | 40.0 to 60.0 |",
        "| turns | 2.93 | 2.70 to 3.20 |",
    ]


def test_metric_values_are_few_rounded_and_in_per_cent() -> None:
    values = metric_values(SCORES)
    assert values == {"EM_percent": 50.5, "EM_greedy_percent": 53.5, "F1_percent": 50.0, "questions": 200.0}
    assert sorted(values)[:2] == ["EM_greedy_percent", "EM_percent"]
    many = {**SCORES, "shown": [f"m{n}" for n in range(20)], "metrics": {f"m{n}": {"value": 0.5} for n in range(20)}}
    assert len(metric_values(many)) == 8


def test_tool_calls_are_counts_even_if_no_attempt_has_two() -> None:
    scores = {"per_question": {"q": {"em": 1.0, "tool_calls": 1.0, "tool_errors": 0.0}}}
    assert count_metrics([scores]) & scores["per_question"]["q"].keys() == {"tool_calls", "tool_errors"}


def test_selection_card_separates_the_histogram_from_the_figures() -> None:
    lines = plain_lines(selection_card(FIGURES))
    assert lines[4:12] == [
        "| figure | value |", "| --- | ---: |", "| rollouts | 1,040 |", "| selected | 12 |", "| mean reward | 0.4568 |",
        "| well formed | 97.5 % |", "| sampling time | 3.3 min |", "",
    ]  # fmt: skip
    assert lines[-4:] == ["| attempts | questions |", "| --- | ---: |", "| 1 | 4 |", "| 6 | 6 |"]
    assert "| attempts | &nbsp;&nbsp;questions |" in selection_card(FIGURES), "the UI has no padding between columns"


def test_rollouts_card_counts_and_shows_a_right_and_a_wrong_dialogue() -> None:
    found = [rollout(0), rollout(1, answer="Paris", malformed="no answer"), rollout(2, answer=None)]
    lines = plain_lines(rollouts_card("warmup", iter(found)))
    assert "| rollouts | 3 |  |" in lines
    assert "| exactly right | 1 | 33.3 % |" in lines
    assert any(line.startswith("**Right:**") and line.endswith("Answer: Lyon.") for line in lines)
    assert any(line.startswith("**Wrong:**") and line.endswith("Answer: Paris. Expected: Lyon.") for line in lines)
    assert "Nothing was sampled." in rollouts_card("warmup", [])


def test_training_card_of_a_skipped_step_gives_the_reason() -> None:
    assert "Nothing was trained: no example" in training_card("warmup", {"skipped": "no example"})
    lines = plain_lines(training_card("warmup", TRAINED))
    assert "| loss | 0.75 | 0.25 |" in lines
    assert "| training time | 40.0 s |" in lines
    online = {"reward_first": 0.25, "reward_last": 0.5, "updates": 30, "training_seconds": 1.0}
    assert "| reward | 0.25 | 0.5 |" in plain_lines(training_card("online", online))


def test_iterations_card_has_exact_match_where_iterations_were_evaluated() -> None:
    row = {**FIGURES, **TRAINED}
    assert "| 2 | 0.4568 | 12 | 0.25 | 4.0 min |" in plain_lines(iterations_card([row]))
    evaluated = plain_lines(iterations_card([{**row, "em": 0.505}]))
    assert "| iteration | EM % | selected | loss | time |" in evaluated
    assert "| 2 | 50.5 | 12 | 0.25 | 4.0 min |" in evaluated


@pytest.mark.parametrize("reason", ["memory ran out\nraise it", "memory ran out"])
def test_failure_card_begins_with_the_reason(reason: str) -> None:
    assert plain_lines(failure_card("sample-02", reason))[:3] == ["## Failed: sample-02", "", "**memory ran out**"]
