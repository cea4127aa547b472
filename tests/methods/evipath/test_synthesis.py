"""Synthesis is resumed per question, shared by processes, and ends with the same examples in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.methods.evipath.checks import Limits
from platform_sdk.methods.evipath.evidence import Similarity
from platform_sdk.methods.evipath.proxy import Proxy, grouped
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.rules import Rules
from platform_sdk.methods.evipath.settings import SynthesisSpec
from platform_sdk.methods.evipath.synthesis import Teaching, drawn, synthesise, table, warn_of_tau, write_outcome
from platform_sdk.processes.shares import EndOfShare, Share
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.sampling.rollout import Agent
from tests.methods.evipath.paths import PATH, LetterEncoder

WORLD = generate(WorldSpec(entities=40, train_questions=30, eval_questions=0))
LIMITS = Limits("compact", 5, 8)


class Killed(Exception):
    pass


class Teacher:
    """The rules, which count whom they are asked for and may be killed."""

    def __init__(self, kill_after: int = 10**9) -> None:
        proxy = Proxy("kg", grouped(WORLD.triples), (), 0, 0)
        self.rules = Rules(proxy, SynthesisSpec(), Similarity(LetterEncoder()), "letters", 0)
        self.asked: list[str] = []
        self.kill_after = kill_after

    def example(self, question: Question, attempt: int) -> Agent[Example]:
        if len(self.asked) >= self.kill_after:
            raise Killed
        self.asked.append(question.id)
        return (yield from self.rules.example(question))

    @contextmanager
    def teaching(self) -> Iterator[Teaching]:
        yield Teaching(self.example, None, live=4)


class AloneShare(Share):
    """A process's share where the others are run one after the other."""

    def gather(self, items: list[Example]) -> list[Example]:  # type: ignore[override]
        return items


def run(folder: Path, teacher: Teacher, questions: list[Question] = WORLD.train) -> list[Example]:
    folder.mkdir(exist_ok=True)
    return synthesise(folder, questions, teacher.teaching, limits=LIMITS, share=Share())[0]


def test_killed_synthesis_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", Teacher())
    with pytest.raises(Killed):
        run(tmp_path / "killed", Teacher(kill_after=11))
    log = tmp_path / "killed/drafts.jsonl"
    kept = len(log.read_text().splitlines()) - 1
    assert 0 < kept < 11
    log.write_bytes(log.read_bytes()[:-20])  # the last line as a kill leaves it
    resumed = Teacher()
    assert run(tmp_path / "killed", resumed) == whole
    assert len(resumed.asked) == len(WORLD.train) - (kept - 1)
    finished = Teacher()
    assert run(tmp_path / "killed", finished) == whole
    assert finished.asked == []
    assert log.read_bytes() == (tmp_path / "whole/drafts.jsonl").read_bytes()


def test_examples_do_not_depend_on_the_order_of_the_questions(tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(WORLD.train, len(WORLD.train))
    whole, mixed = run(tmp_path / "a", Teacher()), run(tmp_path / "b", Teacher(), shuffled)
    assert sorted(map(Example.model_dump_json, whole)) == sorted(map(Example.model_dump_json, mixed))


def test_shares_end_with_the_examples_of_one_process(tmp_path: Path) -> None:
    tmp_path.joinpath("shared").mkdir()
    teachers = [Teacher(), Teacher()]
    with pytest.raises(EndOfShare):
        synthesise(
            tmp_path / "shared", WORLD.train, teachers[1].teaching, limits=LIMITS, share=AloneShare(index=1, count=2)
        )
    # The first process, started again alone, collects what the other had made.
    assert run(tmp_path / "shared", teachers[0]) == run(tmp_path / "alone", Teacher())
    assert not set(teachers[0].asked) & set(teachers[1].asked)
    assert not list((tmp_path / "shared").glob("drafts.share*"))


class Stubborn(Teacher):
    """A teacher whose first attempts fail, and cost two calls and ten tokens each."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def example(self, question: Question, attempt: int) -> Agent[Example]:
        path = (yield from super().example(question, attempt)).model_copy(update={"calls": 2, "tokens": 10})
        failed = path.model_copy(update={"rejected": "cut", "detail": "too long"})
        return failed if attempt < self.failures else path


def test_rejected_path_is_attempted_again_until_one_is_kept(tmp_path: Path) -> None:
    found = {}
    for failures in (0, 2, 3):
        folder, teacher = tmp_path / str(failures), Stubborn(failures)
        folder.mkdir()
        paths, _ = synthesise(folder, WORLD.train[:1], teacher.teaching, limits=LIMITS, share=Share(), attempts=3)
        found[failures] = (paths[0].kept, paths[0].attempts, paths[0].calls, paths[0].tokens, len(teacher.asked))
    assert found == {0: (True, 1, 2, 10, 1), 2: (True, 3, 6, 30, 3), 3: (False, 3, 6, 30, 3)}


def test_path_that_no_model_was_asked_for_is_not_attempted_again(tmp_path: Path) -> None:
    teacher = Teacher()
    wrong = WORLD.train[0].model_copy(update={"answers": ("nobody",)})
    [path], _ = synthesise(tmp_path, [wrong], teacher.teaching, limits=LIMITS, share=Share(), attempts=3)
    assert (path.kept, len(teacher.asked)) == (False, 1)


@pytest.mark.parametrize(("tau", "warned"), [(0.85, False), (0.95, True)])
def test_threshold_that_chooses_nothing_for_most_answers_is_warned_of(
    tau: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_tau([PATH], tau)
    assert ("synthesis.tau" in caplog.text) == warned


def test_table_counts_reasons_and_cost(tmp_path: Path) -> None:
    rejected = PATH.model_copy(update={"id": "r", "rejected": "leak", "detail": "turn 1", "tokens": 10, "calls": 1})
    examples = [PATH.model_copy(update={"tokens": 20, "calls": 3}), rejected]
    assert table(examples, 6.0, 0.85) == {
        "questions": 2, "kept": 1, "rejected": {"leak": 1}, "answer_in_question": 0, "none_above_tau": 0.5,
        "cost": {"tokens": 30, "calls": 4, "seconds": 6.0}, "cost_per_kept": {"tokens": 30, "calls": 4, "seconds": 6.0},
    }  # fmt: skip
    assert table(examples[1:], 6.0, 0.9)["cost_per_kept"]["tokens"] is None
    write_outcome(tmp_path, examples)
    assert list(read_jsonl(tmp_path / "examples.jsonl", Example)) == examples[:1]
    [line] = [json.loads(line) for line in (tmp_path / "rejected.jsonl").read_text().splitlines()[1:]]
    assert (line["id"], line["rejected"], line["detail"]) == ("r", "leak", "turn 1")


def test_examples_name_teacher_prompts_and_encoder(tmp_path: Path) -> None:
    example = run(tmp_path / "a", Teacher(), WORLD.train[:1])[0]
    assert example.encoder == "letters"
    assert len(example.teacher) == len(example.prompts) == 64


def test_larger_draw_keeps_a_smaller_one() -> None:
    few, more = drawn(WORLD.train, 5, 0), drawn(WORLD.train, 12, 0)
    assert {q.id for q in few} < {q.id for q in more}
    assert drawn(WORLD.train, None, 0) == WORLD.train
