"""Online runs in the report: decision traces, learning curves, the way of the scores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.report import build_report, build_summary
from platform_sdk.evaluation.report.lines import Line, line_chart, ticks
from platform_sdk.evaluation.report.trace import sections
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from tests.evaluation.online_runs import make_online_run, question, traced, update, write_scores

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror='window.hurt=2'><!--"


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>", maxsplit=1)[0])
    return found


def final_of(page: str) -> list[dict[str, Any]]:
    data = data_of(page)
    return [r for r in data["rollouts"] if data["phases"][r["phase"]]["name"] == "eval-final"]


def words_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.split("<main")[1].split("<noscript")[0]).split())


def write_final(run_dir: Path, *rollouts: Rollout) -> None:
    write_jsonl(run_dir / "eval-final" / "rollouts.jsonl", Rollout, rollouts)


def test_sections_are_cut_at_any_tags_and_lose_no_text() -> None:
    assert sections("<a>x</a> <b>y [1]</b>\n") == [["a", "x"], ["b", "y [1]"]]
    assert sections("first <a>x</a> then <b>open") == [["", "first"], ["a", "x"], ["", "then <b>open"]]
    assert sections("Lyon") == [["", "Lyon"]]
    assert sections("<a></a>") == [["a", ""]]


def test_chosen_passages_are_classified_against_the_gold_ones(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path)
    chosen = [(1, 3), (3, 1), (1, 2), (2, 4), (), (1, 2, 3)]
    unnamed = traced(9).model_copy(update={"question": question(9).model_copy(update={"gold_passages": ()})})
    write_final(run_dir, *(traced(number, chosen=each) for number, each in enumerate(chosen)), unnamed)
    shown = [r["trace"]["grounds"] for r in final_of(build_report(run_dir))]
    assert shown == ["exact", "exact", "partial", "other", "none", "partial", "unknown"]


def test_gold_passages_with_equal_titles_are_distinguished(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path)
    rollout = traced(0)
    context = tuple(passage.model_copy(update={"title": "Blue Harbour"}) for passage in rollout.question.context)
    asked = rollout.question.model_copy(update={"context": context, "gold_context": ("p2",)})
    write_final(run_dir, rollout.model_copy(update={"question": asked}))
    [shown] = final_of(build_report(run_dir))
    assert [gold for *_, gold in shown["main"]["turns"][0]["evidence"]] == [0, 0, 1, 0]
    assert shown["trace"]["grounds"] == "partial"


def test_report_shows_evenly_spaced_updates(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path, updates=50)
    folder = run_dir / "online" / "rollouts"
    write_jsonl(folder / "0050.rank1.jsonl", Rollout, [traced(70), traced(71)])
    write_jsonl(folder / "stale-0003.jsonl", Rollout, [traced(3)])
    phases = data_of(build_report(run_dir, rollouts=35))["phases"]
    updates = [phase for phase in phases if phase["name"].startswith("online")]
    assert [phase["name"] for phase in updates] == [f"online · update {u}" for u in (1, 8, 15, 22, 29, 36, 43, 50)]
    assert [phase["shown"] for phase in updates] == [3] * 8  # of eight updates and three evaluations
    assert [phase["total"] for phase in updates] == [4] * 7 + [6]


def test_room_that_small_phases_leave_is_used(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path, updates=2)  # evaluations of 10, 10 and 10, updates of 4 and 4
    phases = data_of(build_report(run_dir, rollouts=30))["phases"]
    assert sorted(phase["shown"] for phase in phases) == [4, 4, 7, 7, 7]


def test_curves_and_figures_of_the_updates(tmp_path: Path) -> None:
    words = words_of(build_report(make_online_run(tmp_path)))
    for title in (
        "Scores on the evaluation questions",
        "Other scores on the evaluation questions",
        "Rewards",
        "Rewards on a scale of their own",
        "Loss",
        "Divergence from the reference",
        "Entropy of the policy, in nats per token",
        "Ratio to the policy that sampled",
        "Tokens of an update",
        "Seconds of an update",
    ):
        assert f" {title} " in words
    assert "EM, update 10: 0.5" in words
    assert "groups without variance, update 20: 0" in words
    assert "Evaluations on the way 1 In percent (reward: means)" in words
    assert "metric eval-u0010 n = 10 EM = F1 50.0 40.0 to 60.0" in words
    assert "(reward: means)" in words  # above 1, hence no share
    assert "reward (trained for), update 20: 12" in words
    assert "mean reward, update" not in words
    assert "accuracy, update 10: 0.5" in words
    assert "reward format" in words  # a column of the updates' table


def test_a_phase_of_many_updates_is_smoothed_and_a_short_one_is_not() -> None:
    def chart(points: int) -> str:
        return str(line_chart("t", [Line("l", [(float(x), x % 2) for x in range(points)], "c")], x="update"))

    assert chart(40).count("<circle") == 40
    assert "faint" not in chart(40)
    assert chart(100).count("<circle") == 25
    assert "faint" in chart(100)
    assert "l, around update 1.5: 0.5" in chart(100)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 12.0, (0, 5, 10, 15)),
        (-0.2, 0.1, (-0.2, -0.1, 0, 0.1)),
        (0.0, 1e6, (0, 250_000, 500_000, 750_000, 1_000_000)),
        (0.0, 0.0, (0, 1)),
    ],
)
def test_axis_ticks_are_round_numbers(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_figures_that_some_updates_lack_leave_gaps(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path)
    lines = [update(1, 4, kl=None, clip_fraction=None, grad_norm=None), update(2, 4), update(3, 4)]
    lines[1]["rewards"]["late"] = 0.5
    text = "\n".join(map(json.dumps, lines))
    (run_dir / "online" / "updates.jsonl").write_text(text + '\n{"update": 4, "mean')
    scores = json.loads((run_dir / "eval-start" / "scores.json").read_text())
    del scores["metrics"]["format"]
    (run_dir / "eval-start" / "scores.json").write_text(json.dumps(scores))
    words = words_of(build_report(run_dir))
    assert "KL, update 1:" not in words
    assert "KL, update 2: 0.02" in words
    assert "late, update 2: 0.5" in words
    summary = build_summary(run_dir).replace("&nbsp;", "")
    assert "| online, 3 updates | first tenth | last tenth |" in summary
    assert "| mean reward | 3.75 | 9.25 |\n| loss | -0.125 | 0.025 |\n| KL | – | 0.03 |" in summary


def test_scores_by_part_have_a_chart_of_their_own(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path)
    for phase in ("eval-start", "eval-u0010", "eval-final"):
        values = {"em": 0.5, "format": 1.0, "em_hotpotqa": 0.4, "em_musique": 0.6}
        write_scores(run_dir, phase, {f"q{n}": values for n in range(10)})
    page = build_report(run_dir)
    legends = dict(re.findall(r"<figcaption>(.*?)</figcaption>\s*<p class=.legend.>(.*?)</p>", page))
    names = {title: re.findall(r"</i>(.*?)</span>", legend) for title, legend in legends.items()}
    assert names["Scores on the evaluation questions"] == ["EM"]
    assert names["Other scores on the evaluation questions"] == ["format"]
    assert names["EM by part"] == ["em hotpotqa", "em musique"]


def test_invalid_update_line_is_reported_with_its_number(tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path)
    broken = {**update(2, 4), "rollouts": "many"}
    (run_dir / "online" / "updates.jsonl").write_text(json.dumps(update(1, 4)) + "\n" + json.dumps(broken) + "\n")
    with pytest.raises(UserError, match=r"updates\.jsonl:2: rollouts"):
        build_report(run_dir)


def test_trace_in_the_page(open_page: Any, tmp_path: Path) -> None:
    run_dir = make_online_run(tmp_path, hostile=HOSTILE)
    analysis = f"It is by Tom Oak [1, 2]{HOSTILE} and [3][9]."
    odd = traced(1, chosen=(1, 2), analysis=analysis, malformed=f"odd {HOSTILE}", hostile=HOSTILE)
    write_final(run_dir, traced(0, hostile=HOSTILE), odd, traced(2, chosen=(2,), answer="Paris"))
    page = open_page(build_report(run_dir))
    options, detail = page.locator("#list [role=option]"), page.locator("#detail")
    assert options.count() == 3
    page.check("input[value=ungrounded]", force=True)
    assert options.count() == 2
    options.first.click()
    assert detail.locator(".passage.right b").all_inner_texts() == ["Blue Harbour"]
    assert detail.locator(".passage.stray b").all_inner_texts() == ["Red Harbour"]
    assert detail.locator(".passage.missed b").all_inner_texts() == ["Anna Vey"]
    assert detail.locator(".passage").count() == 4
    assert detail.locator(".passage").nth(3).get_attribute("open") is None
    assert detail.locator(".section h4").all_inner_texts() == ["relevance", "analysis", "answer"]
    cites = detail.locator(".section").nth(1).locator(".cite")
    assert cites.all_inner_texts() == ["1", "2", "3", "9"]
    assert [cite.split()[-1] for cite in cites.evaluate_all("nodes => nodes.map(n => n.className)")] == [
        "right",
        "stray",
        "missed",
        "nowhere",
    ]
    cites.nth(2).click()
    assert detail.locator(".passage.lit b").all_inner_texts() == ["Anna Vey"]
    assert "cited 1×" in detail.locator(".passage.stray").inner_text()
    assert HOSTILE in detail.locator(".section").nth(1).inner_text()
    assert "odd" in detail.locator(".malformed").inner_text()
    assert "bonus\n0" in detail.locator(".rewards").inner_text()
    assert detail.locator(".outcome.right").count() == 1
    assert "Lyon · Lyons" in detail.locator(".outcome").inner_text()
    page.select_option("#phase", label="online · update 20 (4)")
    page.check("input[value=all]", force=True)
    assert options.count() == 4
    for width in (1200, 700, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
