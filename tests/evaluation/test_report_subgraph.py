"""Retrieved hyperedges of a turn, and the worth of each step, as the report draws them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from platform_sdk.evaluation.report import build_report
from platform_sdk.record_files import write_jsonl, write_log
from platform_sdk.records import Evidence, Rollout, Source
from platform_sdk.tracking.credit import RolloutCredit, TurnCredit, credit_file
from tests.tracking.rollouts import agent, environment, rollout, trajectory

HOSTILE = "</script><img src=x onerror='window.hurt=1'>\u202e"
# R of the first is 0.5 · 0.6 + 0.25 · 0.4 + 0.25 · 0.4, of the second 1.0 · 0.3.
PARTS: tuple[dict[str, dict[str, float]], ...] = (
    {
        "film": {"s": 0.9, "S": 0.5, "I": 0.6},
        "anna": {"s": 0.2, "S": 0.25, "I": 0.4},
        "lyon": {"s": 0.1, "S": 0.25, "I": 0.4},
    },
    {"anna": {"s": 0.3, "S": 1.0, "I": 0.3}},
)
NAMES = {"film": "Blue Harbour", "anna": f"Anna Vey{HOSTILE}", "lyon": "Lyon"}


def hyperedges(number: int = 2) -> list[Evidence]:
    return [
        Evidence(
            kind="hyperedge",
            id=f"e{place}",
            title="Blue Harbour" if place == 0 else "Red Harbour",
            text=f"Fact {place} about Anna Vey.{HOSTILE}",
            score=(0.5, 0.3)[min(place, 1)],
            parts={"entities": parts},
            entities=tuple(parts),
            entity_names=tuple(NAMES[id] for id in parts),
            source=Source(passage=f"p{place}"),
            query_entities=("film", "unseen"),
        )
        for place, parts in ((place, PARTS[min(place, 1)]) for place in range(number))
    ]


def searched(*evidence: Evidence) -> Rollout:
    """Return a rollout of three steps: a search that found ``evidence``, a malformed turn, and the answer."""
    search = agent("<think>t</think><query>Blue Harbour</query>", queries=("Blue Harbour",))
    main = trajectory(
        "agent",
        "agent",
        [
            environment("Where was the director of Blue Harbour born?"),
            search.model_copy(update={"rewards": {"struct": 0.75, "progress": -0.25}}),
            environment("<knowledge>what was found</knowledge>", *evidence),
            agent("no tags", "begin with <think>"),
            agent("<think>t</think><answer>Lyon</answer>"),
        ],
        answer="Lyon",
    )
    update = {"main": main, "others": (), "rewards": {"em": 1.0, "f1": 1.0, "reward": 0.875}}
    return rollout().model_copy(update=update)


def page_of(folder: Path, found: Rollout) -> str:
    run_dir = folder / "run"
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps({"name": "drawn", "pipeline": "any", "parameters": {}}))
    write_jsonl(run_dir / "eval-final" / "rollouts.jsonl", Rollout, [found])
    return build_report(run_dir)


def test_hyperedges_are_drawn_with_their_score_parts_and_gold_passages(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, searched(*hyperedges())))
    drawing = page.locator(".subgraph .hypergraph")
    told = page.locator(".subgraph > summary").inner_text()
    assert told == "Subgraph 2 hyperedges, 3 entities, 1 of them linked from the query"
    edges = drawing.locator(".edge")
    assert edges.locator(".score").all_inner_texts() == ["0.5", "0.3"]
    assert edges.locator(".parts").evaluate_all("all => all.map(bar => bar.children.length)") == [3, 1]
    widths = edges.first.locator(".parts i").evaluate_all("all => all.map(piece => piece.style.width)")
    assert widths == ["60%", "20%", "20%"]  # of 0.5: 0.3, 0.1 and 0.1
    assert edges.evaluate_all("all => all.map(edge => edge.classList.contains('gold'))") == [True, False]
    # The entity of the query and the one of both hyperedges join them; the other stands with its hyperedge.
    assert drawing.locator(".joint .entity.root").all_inner_texts() == ["Blue Harbour"]
    assert drawing.locator(".joint .entity:not(.root)").inner_text() == NAMES["anna"]
    assert drawing.locator(".own .entity").inner_text() == "Lyon\n0.1"
    assert drawing.locator(".lines path").count() == 3
    assert page.locator(".gold-line .badge").all_inner_texts() == ["Blue Harbour: 1", "Anna Vey: not found here"]
    retrieved = page.locator(".goldlist .badge").first
    assert retrieved.inner_text() == "retrieved"
    assert retrieved.get_attribute("class") == "badge good"  # no step of this method selects, so none was missed
    assert "in none of these hyperedges: 1 entity." in page.inner_text(".subgraph")
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0


def test_the_table_says_the_same_as_the_drawing(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, searched(*hyperedges())))
    page.click(".same summary")
    assert page.locator(".same thead th").all_inner_texts() == [
        "hyperedge and its entities", "s", "S", "I", "S · I", "score"
    ]  # fmt: skip
    rows = [
        ["Blue Harbourlinked from the query", "0.9", "0.5", "0.6", "0.3", ""],
        [NAMES["anna"], "0.2", "0.25", "0.4", "0.1", ""],
        ["Lyon", "0.1", "0.25", "0.4", "0.1", ""],
    ]
    found = page.locator(".same tbody").first.locator("tr:not(.whole)")
    assert [row.locator("th, td").all_inner_texts() for row in found.all()] == rows


def test_a_hyperedge_is_chosen_by_the_keyboard_and_shows_what_its_entities_add(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, searched(*hyperedges())))
    page.focus(".edges li:nth-child(2) .edge")
    page.keyboard.press("Enter")
    assert page.locator(".hypergraph .lit.entity").inner_text() == f"{NAMES['anna']}\n0.3"
    assert page.locator(".hypergraph path.lit").count() == 1
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.className") == "entity lit"
    page.keyboard.press("Escape")
    assert page.locator(".hypergraph.chosen").count() == 0
    for width in (1200, 700, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        rights = "all => all.map(node => node.getBoundingClientRect().right)"
        assert max(page.locator(".hypergraph button, .hypergraph .entity").evaluate_all(rights)) <= width


def test_graph_draws_the_first_hyperedges_and_the_table_lists_all(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, searched(*hyperedges(40))))
    assert page.locator(".hypergraph .edge").count() == 24
    assert "The first 24 of 40 hyperedges are drawn." in page.inner_text(".subgraph")
    assert page.locator(".same tbody").count() == 40


def test_hyperedges_without_entity_parts_show_what_their_score_is_made_of(open_page: Any, tmp_path: Path) -> None:
    flat = [
        item.model_copy(update={"parts": {"entity": 0.5, "hyperedge": 0.25}, "query_entities": None})
        for item in hyperedges()
    ]
    page = open_page(page_of(tmp_path, searched(*flat)))
    assert page.locator(".edge .words").first.inner_text() == "entity 0.5 · hyperedge 0.25"
    assert page.locator(".hypergraph .root").count() == 0
    assert page.locator(".joint .entity").all_inner_texts() == [NAMES["anna"]]


def test_step_table_shows_the_rewards_of_each_step(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, searched(*hyperedges())))
    assert page.locator(".steps thead th").all_inner_texts() == ["step", "", "struct", "progress", "outcome"]
    assert [row.locator("th, td").all_inner_texts() for row in page.locator(".steps tbody tr").all()] == [
        ["1", "Blue Harbour", "0.75", "-0.25", "0.875"],
        ["2", "malformed", "–", "–", "0.875"],
        ["3", "answer: Lyon", "–", "–", "0.875"],
    ]


def test_advantages_stand_beside_each_step_of_a_rollout_that_was_learned_from(open_page: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps({"name": "drawn", "pipeline": "any", "parameters": {}}))
    learned = run_dir / "online" / "rollouts" / "0001.jsonl"
    found = searched(*hyperedges())
    write_jsonl(learned, Rollout, [found])
    (run_dir / "online" / "train.json").write_text("{}")
    steps = [({"struct": 0.75, "progress": -0.5}, 1.25), ({"progress": 0.25}, 0.0), ({}, -0.5)]
    turns = tuple(TurnCredit(rewards=rewards, advantage=advantage) for rewards, advantage in steps)
    write_log(credit_file(learned), RolloutCredit, [RolloutCredit(rollout=found.id, turns=turns)])
    page = open_page(build_report(run_dir))
    titles = ["step", "", "struct", "progress", "outcome", "advantage"]
    assert page.locator(".steps thead th").all_inner_texts() == titles
    assert [row.locator("th, td").all_inner_texts() for row in page.locator(".steps tbody tr").all()] == [
        ["1", "Blue Harbour", "0.75", "-0.5", "0.875", "1.25"],
        ["2", "malformed", "–", "0.25", "0.875", "0"],
        ["3", "answer: Lyon", "–", "–", "0.875", "-0.5"],
    ]


def test_a_trajectory_without_rewards_of_its_steps_has_no_such_table(open_page: Any, tmp_path: Path) -> None:
    page = open_page(page_of(tmp_path, rollout()))
    assert page.locator(".steps").count() == 0
    assert page.locator(".subgraph").count() == 0


def test_linked_passages_are_listed_with_their_score_parts_and_names(open_page: Any, tmp_path: Path) -> None:
    passage = Evidence(
        kind="passage", id="p1", title="Anna Vey", text="A director.", score=1.5,
        parts={"similarity": 0.5, "links": 1.0}, entities=(NAMES["anna"], "Lyon"), query_entities=("Blue Harbour",),
    )  # fmt: skip
    page = open_page(page_of(tmp_path, searched(passage)))
    notes = page.locator("ul.evidence p.note").all_inner_texts()
    assert notes == ["score: similarity 0.5, links 1", f"found through: {NAMES['anna']}, Lyon"]
    assert page.evaluate("window.hurt") is None
