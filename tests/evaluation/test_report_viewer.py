"""Finding, linking and saving what the report shows."""

from __future__ import annotations

import csv
import io
import json
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from platform_sdk.evaluation.report import build_report
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Rollout
from tests.evaluation.test_report import make_run

CONTRAST = """all => all.map(cell => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const light = colour => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const part = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(value => part(value / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(cell), both = [light(style.color), light(style.backgroundColor)];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
})"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return a run of ten questions: 0 to 3 right at the start, 0 to 8 in the end; odd ones are chains of one hop."""
    made = make_run(tmp_path)
    for path in made.glob("*/rollouts.jsonl"):
        rollouts = [
            found.model_copy(
                update={
                    "question": found.question.model_copy(update={"hops": 1, "type": "chain"})
                    if found.seed % 2
                    else found.question,
                    "rewards": found.rewards | {"shaped": found.seed / 10},
                }
            )
            for found in read_jsonl(path, Rollout)
        ]
        write_jsonl(path, Rollout, rollouts)
    return made


@pytest.fixture
def page(open_page: Any, run_dir: Path) -> Any:
    return open_page(build_report(run_dir))


def seeds(page: Any) -> list[int]:
    texts = page.locator("#list [role=option] .q").all_inner_texts()
    return [int(text.split("film ")[1].split("?")[0]) for text in texts]


def test_filters_by_change_hops_type_and_reward(page: Any) -> None:
    for change, expected in (
        ("better", [4, 5, 6, 7, 8]), ("worse", []), ("both-wrong", [9]), ("both-right", [0, 1, 2, 3])
    ):  # fmt: skip
        page.select_option("#change", change)
        assert seeds(page) == expected, change
    page.select_option("#change", "better")
    page.select_option("#hops", "1")
    assert seeds(page) == [5, 7]
    page.select_option("#change", "")
    page.select_option("#type", "bridge")
    assert seeds(page) == []
    page.select_option("#hops", "")
    assert seeds(page) == [0, 2, 4, 6, 8]
    page.select_option("#reward", "shaped")
    page.fill("#reward-low", "0.3")
    page.fill("#reward-high", "0.6")
    assert seeds(page) == [4, 6]


def test_a_filter_without_a_choice_is_not_offered(open_page: Any, tmp_path: Path) -> None:
    page = open_page(build_report(make_run(tmp_path)))
    assert [page.locator(f"#{name}").is_visible() for name in ("hops", "type", "change", "reward")] == [
        False, False, True, True
    ]  # fmt: skip


def test_a_link_opens_its_trajectory(page: Any) -> None:
    page.fill("#search", "film 7")
    page.locator("#list [role=option]").first.click()
    address = page.evaluate("location.href")
    assert address.endswith("#t=eval-final/q7%231")
    assert page.locator("#detail a", has_text="Link to this trajectory").evaluate("link => link.href") == address
    other = address.replace("eval-final/q7%231", "eval-start/q2%232")
    for target in (other, address):
        page.goto("about:blank")
        page.goto(target)
        number, phase = ("2", "eval-start") if target == other else ("7", "eval-final")
        assert f"film {number}?" in page.inner_text("#detail h3")
        assert phase in page.inner_text("#detail .badges")
    page.evaluate(f"location.hash = {json.dumps(other.split('#', 1)[1])}")
    page.wait_for_function("document.querySelector('#detail h3').textContent.includes('film 2?')")
    page.evaluate("location.hash = 't=eval-final/no%20such'")
    assert "film 2?" in page.inner_text("#detail h3")


def saved(page: Any, button: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_label(button).first.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_the_shown_table_is_saved_as_csv(page: Any) -> None:
    name, content = saved(page, "Save the table scores as CSV")
    assert name == "scores.csv"
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))
    assert rows[0] == [
        "metric", "eval-start", "eval-start low", "eval-start high", "eval-final", "eval-final low", "eval-final high",
        "difference, paired", "difference, paired low", "difference, paired high",
    ]  # fmt: skip
    assert rows[1] == ["EM", "40.0", "30.0", "50.0", "90.0", "80.0", "100.0", "+50.0", "+20.0", "+80.0"]


def test_a_figure_is_saved_with_its_title_and_legend(page: Any) -> None:
    name, content = saved(page, "Save the figure Training loss as SVG")
    assert name == "training-loss.svg"
    picture = ElementTree.fromstring(content)
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["Training loss", "first step", "last step"]
    assert "iteration" in texts
    assert b"var(" not in content
    _, scores = saved(page, "Save the figure Scores with their 95 % intervals for each phase as SVG")
    assert b"eval-start n = 10" in scores
    name, content = saved(page, "Save the figure Training loss as PNG")
    assert name == "training-loss.png"
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (2 * int(float(picture.get("width", "0"))), 2 * int(float(picture.get("height", "0"))))


def test_heat_map_is_legible_in_light_and_dark(page: Any) -> None:
    cells = page.locator(".heat td:not(.plain)")
    cells.evaluate_all("all => all.forEach((cell, place) => cell.style.setProperty('--s', place / (all.length - 1)))")
    for _ in range(2):
        assert min(cells.evaluate_all(CONTRAST)) >= 4.5
        page.click("#theme")


def test_score_columns_fit_a_phone_screen(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for column in (2, 3):
        box = page.locator(f".scores tbody tr:first-child > :nth-child({column})").first.bounding_box()
        assert box["x"] + box["width"] <= 390 - 16
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.locator(".scroll:has(.scores)").first.evaluate("box => box.scrollWidth <= box.clientWidth")
