"""Responses put together from parts whose worth is known, each decided from the specification by hand.

The question has ten passages; 2 and 5 are gold. Accepted answers are ``Ann Lee`` and ``A. Lee``.
"""

from __future__ import annotations

from dataclasses import dataclass

from platform_sdk.records import Passage, Question, Rollout, Trajectory, Turn

QUESTION = Question(
    id="q",
    text="Who directed the film?",
    answers=("Ann Lee", "A. Lee"),
    dataset="hotpotqa",
    gold_passages=("T2", "T5"),
    context=tuple(Passage(id=f"q/{n - 1}", title=f"T{n}", text=f"Text {n}.") for n in range(1, 11)),
)

RELEVANCE: list[tuple[str, float]] = [
    ("[2,5]", 1), ("[5,2]", 1), ("[ 2 , 5 ]", 1), ("[2,5,5,2]", 1), ("\n[2,\r\n5]\t", 1), ("[02,005]", 1),
    ("[2]", 0.5), ("[2,5,7]", 0.5), ("[-2,5]", 0.5), ("[0,2,5]", 0.5), ("[2,5,99999999999999999999]", 0.5),
    ("[2," + "9" * 5000 + "]", 0.5), ("[1,2,3,4,5,6,7,8,9,10]", 0.5), ("[11,5]", 0.5),
    ("[7]", 0), ("[]", 0), ("[0]", 0), ("[-2,-5]", 0), ("[25]", 0), ("", 0),
    ("2,5", 0), ("[2,5", 0), ("2,5]", 0), ("[2 5]", 0), ("[2;5]", 0), ("[2][5]", 0), ("[2], [5]", 0), ("[[2,5]]", 0),
    ("[2,5,]", 0), ("[2,five]", 0), ("[2.0,5.0]", 0), ("[2,5].", 0), ("passages [2,5]", 0), ("(2,5)", 0), ("{2,5}", 0),
    ("[２,５]", 0), ("[٢,٥]", 0), ("[²,5]", 0), ("［2,5］", 0), ("[2，5]", 0), ("[2,\u200b5]", 0), ("[2,5]<br>", 0),
]  # fmt: skip

ANSWERS: list[tuple[str, float]] = [
    ("Ann Lee", 1), ("ann  LEE", 1), ("\n Ann Lee \r\n", 1), ("The Ann-Lee!", 1), ("“Ann Lee”", 1), ("‘Ann’ Lee", 1),
    ("Ann_Lee", 1), ("a. lee", 1), ("Lee", 1),  # "A. Lee" loses its article: punctuation goes first, as a space
    ("Ann, the Lee", 1), ("Ann\u00a0Lee", 1), ("&Ann/Lee;", 1),
    ("AnnLee", 0), ("Ann Lee Jr.", 0), ("Ann", 0), ("Ann's Lee", 0), ("", 0), ("  ", 0), ("the", 0), ("Ａnn Lee", 0),
    ("Ann\u200bLee", 0), ("Ann Lee or Bo Li", 0), ("«Ann Lee»", 0), ("[Ann Lee", 1), ("<b>Ann Lee</b>", 0),
]  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """Arrangement of the sections: ``{r}`` and ``{a}`` are the relevance list and the answer, ``{R}``, ``{N}`` and
    ``{A}`` whole sections; whether the format holds, strictly and compatibly; which of the two sections can be read.
    """

    text: str
    strict: int
    compat: int
    reads_relevance: bool = True
    reads_answer: bool = True


FRAMES = [
    Frame("{R}{N}{A}", 1, 1),
    Frame("{R}\r\n\t{N}\n\n{A}\n ", 1, 1),
    Frame("\n {R}{N}{A}", 1, 0),
    Frame("{R}<analysis></analysis>{A}", 1, 1),
    Frame("{R}<analysis>see [2]\n<b>and</b> <thought>[5]</thought></analysis>{A}", 1, 0),
    Frame("{R}{N}{A}\nThat is all.", 0, 1),
    Frame("{R}{N}{A}\r\nThat is all.", 0, 0),
    Frame("{R}{N}{A} \n\n That is all.", 0, 0),
    Frame("Sure! {R}{N}{A}", 0, 0),
    Frame("Sure!\n{R}{N}{A}", 0, 0),
    Frame("{R}{N}{A} That is all.", 0, 0),
    Frame("{R}{N}{A}.\n", 0, 0),
    Frame("{R} and {N}{A}", 0, 0),
    Frame("{R}{N}\nso\n{A}", 0, 0),
    Frame("\u200b{R}{N}{A}", 0, 0),
    Frame("\ufeff{R}{N}{A}", 0, 0),
    Frame("{R}{N}\u200b{A}", 0, 0),
    Frame("```\n{R}{N}{A}\n```", 0, 0),
    Frame("<response>{R}{N}{A}</response>", 0, 0),
    Frame("{N}{R}{A}", 0, 0),
    Frame("{R}{A}{N}", 0, 0),
    Frame("{A}{N}{R}", 0, 0),
    Frame("{R}{A}", 0, 0),
    Frame("{R}{N}", 0, 0, reads_answer=False),
    Frame("{N}{A}", 0, 0, reads_relevance=False),
    Frame("{R}", 0, 0, reads_answer=False),
    Frame("{A}", 0, 0, reads_relevance=False),
    Frame("{a}", 0, 0, reads_relevance=False, reads_answer=False),
    Frame("", 0, 0, reads_relevance=False, reads_answer=False),
    Frame("{R}{R}{N}{A}", 0, 0, reads_relevance=False),
    Frame("{R}{N}{A}{R}", 0, 0, reads_relevance=False),
    Frame("{R}{N}{A}{A}", 0, 0, reads_answer=False),
    Frame("{R}{N}{A}\n{A}", 0, 1, reads_answer=False),
    Frame("{R}{N}{N}{A}", 0, 0),
    Frame("{R}{N}{A}{R}{N}{A}", 0, 0, reads_relevance=False, reads_answer=False),
    Frame("{R}<analysis>the <answer> is near</analysis>{A}", 0, 0, reads_answer=False),
    Frame("{R}<analysis>near</answer></analysis>{A}", 0, 0, reads_answer=False),
    Frame("{R}<analysis>x {R}</analysis>{A}", 0, 0, reads_relevance=False),
    Frame("{R}<analysis>x <analysis>y</analysis></analysis>{A}", 0, 0),
    Frame("<analysis>{R} so</analysis>{A}", 0, 0),
    Frame("{R}<analysis>{A}</analysis>", 0, 0),
    Frame("<relevance><relevance>{r}</relevance></relevance>{N}{A}", 0, 0, reads_relevance=False),
    Frame("{R}{N}<answer><answer>{a}</answer></answer>", 0, 0, reads_answer=False),
    Frame("<relevance>{r}{N}{A}", 0, 0, reads_relevance=False),
    Frame("{r}</relevance>{N}{A}", 0, 0, reads_relevance=False),
    Frame("</relevance>{r}<relevance>{N}{A}", 0, 0, reads_relevance=False),
    Frame("{R}<analysis>x{A}", 0, 0),
    Frame("{R}{N}<answer>{a}", 0, 0, reads_answer=False),
    Frame("{R}{N}{a}</answer>", 0, 0, reads_answer=False),
    Frame("{R}{N}</answer>{a}<answer>", 0, 0, reads_answer=False),
    Frame("<RELEVANCE>{r}</RELEVANCE>{N}{A}", 0, 0, reads_relevance=False),
    Frame("{R}{N}<Answer>{a}</Answer>", 0, 0, reads_answer=False),
    Frame("{R}{N}<answer >{a}</answer >", 0, 0, reads_answer=False),
    Frame("{R}{N}＜answer＞{a}＜/answer＞", 0, 0, reads_answer=False),
    Frame("{R}{N}&lt;answer&gt;{a}&lt;/answer&gt;", 0, 0, reads_answer=False),
    Frame("{R}{N}[answer]{a}[/answer]", 0, 0, reads_answer=False),
    # What a reasoning model thinks first is no part of its response.
    Frame("<think>First {R}{A}? No.</think>\n\n{R}{N}{A}", 1, 1),
    Frame("it is {A}</think>{R}{N}{A}", 1, 1),
    Frame("<think>it is {R}{A}", 0, 0, reads_relevance=False, reads_answer=False),
    Frame("{R}<think>x</think>{A}", 0, 0, reads_relevance=False),
    Frame("{R}<think>x</think>{N}{A}", 0, 0, reads_relevance=False),
]


@dataclass(frozen=True)
class Case:
    """A response with the components that it is worth; ``format`` under both settings."""

    text: str
    strict: float
    compat: float
    accuracy: float
    relevance: float

    def bonus(self, format: float) -> float:
        return 10.0 if (format, self.accuracy, self.relevance) == (1, 1, 1) else 0.0

    def reward(self, format: float) -> float:
        return format + self.accuracy + self.relevance + self.bonus(format)


def cases() -> list[Case]:
    """All lists and all answers in the plain frame, and some of each in every frame."""
    plain = FRAMES[0]
    chosen = [(plain, r, ANSWERS[0]) for r in RELEVANCE] + [(plain, RELEVANCE[0], a) for a in ANSWERS]
    some = [(0, 0), (6, 4), (1, 13), (14, 7)]
    chosen += [(frame, RELEVANCE[r], ANSWERS[a]) for frame in FRAMES for r, a in some]
    return [_case(frame, *r, *a) for frame, r, a in chosen]


def _case(frame: Frame, listed: str, relevance: float, answer: str, accuracy: float) -> Case:
    parts = {
        "{R}": f"<relevance>{listed}</relevance>",
        "{N}": "<analysis>Passage [2] says so.</analysis>",
        "{A}": f"<answer>{answer}</answer>",
        "{r}": listed,
        "{a}": answer,
    }
    text = frame.text
    for name, part in parts.items():
        text = text.replace(name, part)
    return Case(
        text,
        float(frame.strict),
        float(frame.compat and "<" not in listed + answer),
        accuracy if frame.reads_answer else 0.0,
        relevance if frame.reads_relevance else 0.0,
    )


def rollout_of(text: str, question: Question = QUESTION, answer: str | None = None) -> Rollout:
    """A rollout that said ``text``, with no tokens."""
    turn = Turn(speaker="agent", text=text, start=0, end=0)
    trajectory = Trajectory(
        role="agent", id="agent", token_ids=(), agent_mask=(), logprobs=(), turns=(turn,), answer=answer
    )
    return Rollout(question=question, attempt=0, seed=0, main=trajectory, outcome="answered", weights="w", corpus="c")
