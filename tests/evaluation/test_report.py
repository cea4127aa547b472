from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.phase_statistics import Dialogue, Message, Statistics, Table
from platform_sdk.evaluation.report import build_note, build_report, build_summary
from platform_sdk.evaluation.report.content import gather
from platform_sdk.evaluation.report.curves import curves
from platform_sdk.evaluation.report.lines import BOTTOM, HEIGHT, TOP
from platform_sdk.pages import embedded_json
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking import manifest
from tests.refusals import refused
from tests.tracking.rollouts import rollout

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror='window.hurt=2'><!--"


def make_run(folder: Path, *, hostile: str = "") -> Path:
    """A run of ten questions, four right at the start and nine in the end, with one iteration between."""
    run_dir = folder / "run"
    (run_dir / "corpus").mkdir(parents=True)
    recipe = {"pipeline": "mygo", "name": "world" + hostile, "description": hostile, "parameters": {"x": hostile}}
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    (run_dir / "corpus" / "digests.json").write_text(json.dumps({"passages": "1234567890abcdef" + hostile}))
    manifest.record(run_dir, "run started" + hostile, {"setup": "r" * 64})
    for phase, right in (("eval-start", 4), ("iteration-01", 6), ("eval-final", 9)):
        rollouts = [
            rollout(
                number,
                answer="Lyon" if number < right else ("Paris" + hostile if number < 9 else None),
                malformed="no <think> section" + hostile if number in (2, 7) else None,
                hostile=hostile,
            )
            for number in range(10)
        ]
        write_jsonl(run_dir / phase / "rollouts.jsonl", Rollout, rollouts)
        per_question = {r.question.id: {"em": r.rewards["em"], "turns": 3.0} for r in rollouts}
        share = right / 10
        if phase.startswith("eval"):
            scores = {
                "phase": phase,
                "n": 10,
                "metrics": {
                    "turns": {"value": 3.0, "low": 3.0, "high": 3.0},
                    "em": {"value": share, "low": share - 0.1, "high": share + 0.1},
                },
                "per_question": per_question,
            }
            (run_dir / phase / "scores.json").write_text(json.dumps(scores))
        else:
            figures = {
                "iteration": 1,
                "mean_reward": 0.4,
                "threshold": 0.7,
                "acceptance_rate": 0.6,
                "attempts_histogram": {"1": 6, "3": 4},
                "questions_without_accepted": 2,
                "examples": 24,
            }
            (run_dir / phase / "figures.json").write_text(json.dumps(figures))
            (run_dir / phase / "train.json").write_text(json.dumps({"loss_first": 1.5, "loss_last": 0.5}))
            write_jsonl(run_dir / phase / "selected.jsonl", Rollout, [r for r in rollouts if r.rewards["em"]])
    return run_dir


def test_embedded_json_cannot_close_its_script_element() -> None:
    value = {"a": HOSTILE + "\u2028\u2029&amp;", "b": [1, None, "é"]}
    text = embedded_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_page_loads_nothing_and_keeps_hostile_text_out_of_its_markup(tmp_path: Path) -> None:
    page = build_report(make_run(tmp_path, hostile=HOSTILE))
    elements: list[tuple[str, dict[str, str | None]]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            elements.append((tag, dict(attrs)))

    Parser().feed(page)
    assert [tag for tag, _ in elements].count("script") == 2
    assert "img" not in {tag for tag, _ in elements}
    for tag, attributes in elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href", "action"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in page
    assert "url(" not in page


def test_page_says_the_scores_and_their_paired_difference(tmp_path: Path) -> None:
    text = re.sub(r"<[^>]*>", " ", build_report(make_run(tmp_path)).split("<main")[1].split("<noscript")[0])
    words = " ".join(text.split())
    assert "metric eval-start n = 10 eval-final n = 10 difference, paired n = 10" in words
    assert re.search(r"EM 40\.0 30\.0 to 50\.0 90\.0 80\.0 to 100\.0 \+50\.0 \+20\.0 to \+80\.0", words)
    assert "turns 3.00 3.00 to 3.00 3.00 3.00 to 3.00 +0.00" in words
    assert "paired over 10 questions" in words
    assert "1 6 4 2" in words  # the attempts: six questions at the first, four at the third, two never accepted


def test_the_metrics_that_the_method_names_come_first(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    assert _metrics(build_summary(run_dir)) == ["EM", "turns"]
    for path in run_dir.glob("eval-*/scores.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"shown": ["turns", "em"]}))
    assert _metrics(build_summary(run_dir)) == ["turns", "EM"]
    cards = re.findall(r'<p class="label">([^<]*)', build_report(run_dir))
    assert [card.strip() for card in cards] == ["turns", "EM"]


def test_the_note_says_what_was_run_on_what_and_how_it_scored_before_and_after(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    parameters = {"model": "hopforge:world-base", "dataset": {"format": "world"}, "environment": "world-kg", "seed": 7}
    (run_dir / "recipe.json").write_text(json.dumps({"name": "n", "pipeline": "p", "parameters": parameters}))
    (run_dir / "tracking").mkdir()
    (run_dir / "tracking" / "environment.json").write_text(json.dumps({"description": "Why it was run."}))
    for path in run_dir.glob("eval-*/scores.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"shown": ["em"]}))
    headline, description, facts, title, scores, report = build_note(run_dir).strip().split("\n\n")
    assert re.fullmatch(
        r"\*\*em 40\.0 → 90\.0\*\*, difference \*\*\+50\.0\*\* \(\+.* to \+.*\) on 10 questions", headline
    )
    assert description == "Why it was run."
    assert facts.splitlines() == [
        "- recipe: n", "- pipeline: p", "- model: hopforge:world-base",
        "- data: world, world-kg, 10 evaluation questions", "- seed: 7",
    ]  # fmt: skip
    assert title.startswith("Scores of eval-start → eval-final on 10 questions")
    assert scores.startswith("- em: 40.0 (")
    assert report == f"Report: `{run_dir / 'report.html'}`, also report.html among the artifacts."
    (run_dir / "eval-final" / "scores.json").unlink()
    assert "\n- em: 40.0" in build_note(run_dir)
    assert "difference" not in build_note(run_dir)


def test_scores_that_are_equal_on_every_question_are_one_row(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    for path in run_dir.glob("eval-*/scores.json"):
        scores = json.loads(path.read_text())
        for own in scores["per_question"].values():
            own |= {"f1": own["em"], "accuracy": own["em"] / 2, "searches": 3.0}
        scores["metrics"] |= {"f1": scores["metrics"]["em"], "accuracy": {"value": 0.2}, "searches": {"value": 3.0}}
        path.write_text(json.dumps(scores))
    page = build_report(run_dir)
    rows = re.findall(r'<th scope="row">([^<]*)</th>\s*<td class="n"><b>', page)
    assert rows == ["EM = F1", "turns", "accuracy", "searches"]  # turns and searches are equal as they are constant
    assert re.findall(r'<p class="label">([^<]*)', page) == ["EM = F1 "]


def test_the_header_says_what_was_run_when_and_at_what_cost(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    parameters = {"model": "hopforge:world-base", "dataset": {"format": "musique"}, "environment": "musique", "seed": 7}
    (run_dir / "recipe.json").write_text(json.dumps({"name": "n", "pipeline": "p", "parameters": parameters}))
    figures = run_dir / "iteration-01" / "figures.json"
    figures.write_text(json.dumps({"sampling_seconds": 500, "tokens_sampled": 1200} | json.loads(figures.read_text())))
    (run_dir / "tracking").mkdir()
    about = {
        "commit": "c" * 40,
        "dirty": True,
        "python": "3",
        "packages": {},
        "hardware": "2 CPUs",
        "description": "Why.",
    }
    (run_dir / "tracking" / "environment.json").write_text(json.dumps(about))
    page = build_report(run_dir)
    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", page))
    assert facts.pop("started").endswith(" UTC")
    assert facts == {
        "run": "run", "model": "hopforge:world-base", "data": "musique, 10 evaluation questions", "seed": "7",
        "duration": "0.0 s", "hardware": "2 CPUs", "cost": "8.3 min of sampling and training",
        "tokens": "1,200 sampled (2 a second), 0 trained on", "iterations": "1",
        "commit": "cccccccccc, with changes that were not committed",
    }  # fmt: skip
    assert '<p class="lead">Why.</p>' in page
    assert "chain holds" not in page


def test_the_loss_of_a_warm_up_is_drawn(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    (run_dir / "warmup").mkdir()
    curve = [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5}]
    (run_dir / "warmup" / "train.json").write_text(json.dumps({"curve": curve, "training_seconds": 4.0}))
    page = build_report(run_dir)
    assert "Loss of warmup" in page
    assert "loss, step 2: 1.5" in page


def test_two_models_have_a_loss_each(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    roles = {
        role: {"loss_last": last, "curve": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": last}]}
        for role, last in (("planner", 1.5), ("worker", 1.25))
    }
    for phase in ("warmup", "iteration-01"):
        (run_dir / phase).mkdir(exist_ok=True)
        (run_dir / phase / "train.json").write_text(json.dumps({"roles": roles, "training_seconds": 4.0}))
    page = build_report(run_dir)
    assert "worker, step 2: 1.25" in page
    assert "last step, planner, iteration 1: 1.5" in page


def test_rollouts_are_counted_although_none_is_shown(tmp_path: Path) -> None:
    data = _data(build_report(make_run(tmp_path), rollouts=2))
    assert [(p["shown"], p["total"]) for p in data["phases"]] == [(0, 10)] * 3


def test_rewards_on_a_scale_of_their_own_stay_inside_the_chart(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = run_dir / "iteration-01/figures.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mean_reward": 2.5, "threshold": -0.5}))
    [chart] = [curve for curve in curves(gather(run_dir, rollouts=0)) if curve.title == "Reward and threshold"]
    heights = [float(height) for height in re.findall(r'cy="([-\d.]+)"', chart.svg)]
    assert len(heights) == 2
    assert all(TOP <= height <= HEIGHT - BOTTOM for height in heights)


def test_rollouts_beyond_the_cap_are_counted_and_all_phases_keep_the_same_questions(tmp_path: Path) -> None:
    page = build_report(make_run(tmp_path), rollouts=12)
    data = _data(page)
    assert [(p["name"], p["shown"], p["total"]) for p in data["phases"]] == [
        ("eval-start", 4, 10),
        ("iteration-01", 4, 10),
        ("eval-final", 4, 10),
    ]
    chosen = [{r["id"] for r in data["rollouts"] if r["phase"] == phase} for phase in range(3)]
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(chosen[0]) == 4


def test_viewer_data_of_one_rollout(tmp_path: Path) -> None:
    data = _data(build_report(make_run(tmp_path)))
    shown = next(r for r in data["rollouts"] if r["id"] == "q2#2" and r["phase"] == 2)
    assert shown["right"]
    assert shown["malformed"] == 1
    turns = [turn for turn in shown["main"]["turns"] if turn["by"] == "agent"]
    called = [turn.get("called", []) for turn in turns]
    assert [[one["id"] for one in each] for each in called] == [["1.0", "1.1"], [], ["3.0"], []]
    assert [turn.get("queries", []) for turn in turns] == [
        ["Who directed it?", "Which studio?"], [], ["Where was Anna Vey born?"], []
    ]  # fmt: skip
    found = called[0][0]["turns"][0]["evidence"]
    titles = [data["evidence"][place]["title"] for place, *_ in found]
    assert titles == ["Blue Harbour", "Red Harbour"]
    # [place, score, selected, gold]: the first was selected and is gold; the second is neither
    assert [flags[1:] for flags in found] == [[0.9, 1, 1], [0.8, 0, 0]]
    assert shown["gold"] == [
        {"name": "Blue Harbour", "retrieved": True, "selected": True},
        {"name": "Anna Vey", "retrieved": False, "selected": False},
    ]


def test_an_unfinished_run_has_a_report(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    for name in ("scores.json", "rollouts.jsonl"):
        (run_dir / "eval-final" / name).unlink()
    with (run_dir / "iteration-01" / "rollouts.jsonl").open("a") as stream:
        stream.write('{"question": {"id": "being writ')
    data = _data(build_report(run_dir))
    assert [(p["name"], p["total"]) for p in data["phases"]] == [("eval-start", 10), ("iteration-01", 10)]
    assert "eval-start" in build_summary(run_dir)


def test_statistics_that_a_phase_left_are_shown_and_can_end_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    table = Table(title="Reasons", head=("check", "paths"), rows=(("leak", 3), (None, 1)))
    said = Dialogue(title="planner, q", messages=(Message(role="assistant", content="<think>x</think>"),))
    summary = "1 of 4 <b>kept</b>"
    Statistics(title="Paths", summary=summary, tables=(table,), dialogues=(said,)).write(run / "iteration-01")
    page = build_report(run)
    assert "1 of 4 &lt;b&gt;kept&lt;/b&gt;" in page
    assert '<th scope="row">leak</th><td class="n">3</td>' in page
    assert '<th scope="row">–</th><td class="n">1</td>' in page
    assert '<pre class="assistant">&lt;think&gt;x&lt;/think&gt;</pre>' in page


def test_report_refuses_a_broken_manifest_and_shows_it_on_request(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = run_dir / "manifest.jsonl"
    path.write_text(path.read_text().replace("run started", "run began"))
    with pytest.raises(UserError, match=r"manifest\.jsonl: .*the entry was altered .*or add --altered"):
        build_report(run_dir, altered=False)
    assert isinstance(CliRunner().invoke(app, ["report", str(run_dir)]).exception, UserError)
    assert not (run_dir / "report.html").exists()
    done = CliRunner().invoke(app, ["report", str(run_dir), "--altered"])
    assert done.exit_code == 0, done.exception
    assert "the entry was altered" in done.stderr
    assert "Warning: " in (run_dir / "report.html").read_text()


def test_no_run_directory_is_one_clear_error(tmp_path: Path) -> None:
    with refused("run.not-a-run"):
        build_report(tmp_path)


def test_summary_has_a_row_for_each_metric_with_the_difference(tmp_path: Path) -> None:
    """Five columns, so that the table fits the panel of the Kubeflow UI, however many metrics there are."""
    summary = build_summary(make_run(tmp_path)).replace("&nbsp;", "")
    assert summary.splitlines()[:9] == [
        "## world",
        "",
        "10 questions. Shares in per cent; difference: after − before on the same questions, with its 95 % interval.",
        "",
        "| metric | before | after | difference | 95 % interval |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| EM | 40.0 | 90.0 | **+50.0** | +20.0 to +80.0 |",
        "| turns | 3.00 | 3.00 | **+0.00** | +0.00 to +0.00 |",
        "",
    ]
    assert "| iteration | reward | selected | loss | time |" in summary
    assert "| 1 | 0.4 | – | 0.5 | – |" in summary


def test_summary_of_one_evaluation_has_its_intervals(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    (run_dir / "eval-final" / "scores.json").unlink()
    summary = build_summary(run_dir).replace("&nbsp;", "")
    assert "| metric | eval-start | 95 % interval |" in summary
    assert "| EM | 40.0 | 30.0 to 50.0 |" in summary


def _metrics(summary: str) -> list[str]:
    rows = [line.split("|")[1].strip() for line in summary.replace("&nbsp;", "").splitlines() if line.startswith("|")]
    return rows[2 : rows.index("iteration")]


def _data(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>", maxsplit=1)[0])
    return found


@pytest.fixture
def opened(open_page: Any, tmp_path: Path) -> Iterator[Any]:
    """The page of a run whose every text is hostile."""
    page = open_page(build_report(make_run(tmp_path, hostile=HOSTILE)))
    yield page
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0


def test_report_filters_select_matching_trajectories(opened: Any) -> None:
    options = opened.locator("#list [role=option]")
    assert options.count() == 10  # the last phase, eval-final
    assert opened.locator("input[value=ungrounded]").count() == 0  # no answers from given passages
    for outcome, expected in (("right", 9), ("wrong", 1), ("malformed", 2), ("accepted", 0), ("all", 10)):
        opened.check(f"input[value={outcome}]", force=True)
        assert options.count() == expected, outcome
        assert opened.inner_text("#count").startswith(f"{expected} of 10 trajectories")
    opened.select_option("#phase", label="iteration-01 (10)")
    opened.check("input[value=accepted]", force=True)
    assert options.count() == 6
    opened.check("input[value=all]", force=True)
    opened.fill("#search", "FILM 7")
    assert options.count() == 1
    opened.select_option("#phase", "")
    assert options.count() == 3
    opened.fill("#search", "no such thing")
    assert options.count() == 0
    assert "Nothing matches" in opened.inner_text("#list")


def test_report_viewer_shows_called_trajectories_side_by_side(opened: Any) -> None:
    opened.fill("#search", "film 2")
    detail = opened.locator("#detail")
    assert HOSTILE in detail.locator("h3").inner_text()
    workers = detail.locator(".called").first.locator(".trajectory")
    assert workers.locator("h4").all_inner_texts() == ["Who directed it?", "Which studio?"]
    left, right = workers.nth(0).bounding_box(), workers.nth(1).bounding_box()
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] < right["x"]
    assert workers.nth(0).locator("li.selected.gold").count() == 1
    assert workers.nth(1).locator("li.selected").count() == 0
    assert detail.locator(".part.answer").inner_text() == "Lyon"
    assert "no <think> section" in detail.locator("> .turn > .malformed").inner_text()
    detail.locator(".also button", has_text="eval-start").click()
    assert "eval-start" in detail.locator(".badges").inner_text()


def test_report_list_is_operated_by_keyboard(opened: Any) -> None:
    opened.focus("#list")
    chosen = opened.locator("#list [aria-selected=true]")
    for key, place in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", 9), ("Home", 0)):
        opened.keyboard.press(key)
        assert chosen.count() == 1
        assert chosen.get_attribute("id") == f"option-{place}"
        assert opened.get_attribute("#list", "aria-activedescendant") == f"option-{place}"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "detail"


def test_light_and_dark_and_no_sideways_scrolling(opened: Any) -> None:
    def background() -> str:
        return str(opened.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    opened.click("#theme")
    dark = background()
    opened.emulate_media(color_scheme="dark")
    opened.click("#theme")
    assert background() == light != dark
    for width in (1200, 700, 360):
        opened.set_viewport_size({"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_thousands_of_rollouts_stay_quick(open_page: Any, tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    write_jsonl(run_dir / "eval-final" / "rollouts.jsonl", Rollout, (rollout(number) for number in range(2000)))
    page = open_page(build_report(run_dir, rollouts=6000))
    assert page.locator("#list [role=option]").count() < 500  # the rest is drawn as the list is scrolled
    page.focus("#list")
    page.keyboard.press("End")
    assert page.locator("#list [aria-selected=true]").get_attribute("id") == "option-1999"
