"""Prompts of the generator. All wording is the project's own.

Two styles say the same things: ``standard`` for instruction-tuned models, ``compact`` for small models that cannot
afford long instructions. The user's message is the same in both: the question, then the passages numbered from 1 in
their original order (ARENA, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from platform_sdk.data.sentences import split_sentences
from platform_sdk.methods.arena.grammar import Form, write
from platform_sdk.records import Passage, Question

Style = Literal["standard", "compact"]
Numbers = Literal["passages", "sentences"]

_SHORT = "the answer alone (a name, a date, a number, yes or no), no sentence"
_STANDARD: dict[Form, str] = {
    "three_part": f"""\
You answer a question from numbered passages so that others can check how. \
Your reply consists of exactly three sections in this order, with nothing before, between or after them:
<relevance>[…]</relevance>: the numbers of the passages you need for the answer and of no others, in one pair of \
brackets and separated by commas, such as [2,7].
<analysis>…</analysis>: how the answer follows from these passages; after each claim comes the number of the passage \
that says it.
<answer>…</answer>: {_SHORT}.""",
    "think": f"""\
You answer a question from numbered passages. Your reply consists of exactly two sections in this order, with nothing \
before, between or after them:
<think>…</think>: your thoughts.
<answer>…</answer>: {_SHORT}.""",
    "direct": f"You answer a question from numbered passages. Your reply is {_SHORT}.",
}
_STANDARD_CLOSED_BOOK = f"You answer a question from your own knowledge. Your reply is {_SHORT}."
_COMPACT: dict[Form, str] = {
    "three_part": "Answer from the passages : relevance , analysis , answer .",
    "think": "Answer from the passages : think , answer .",
    "direct": "Answer from the passages .",
}
_COMPACT_CLOSED_BOOK = "Answer ."


def instruction(style: Style, form: Form, *, passages: bool = True) -> str:
    """The system message; without passages the answer alone is asked for, whatever the form."""
    if not passages:
        return _STANDARD_CLOSED_BOOK if style == "standard" else _COMPACT_CLOSED_BOOK
    return (_STANDARD if style == "standard" else _COMPACT)[form]


def opening(
    question: str, passages: Sequence[Passage], style: Style = "standard", numbers: Numbers = "passages"
) -> str:
    """The user's message; without passages it is the question.

    ``numbers`` is where a passage's number stands: before it, or also after each of its sentences, so that a small
    model copies the right number together with a sentence. In the compact style the question comes last: small models
    find the answer in earlier passages more reliably than they remember a question while reading the passages.
    """
    asked, numbered = f"Question : {question}", _numbered(passages, numbers)
    return "\n".join([asked, *numbered] if style == "standard" else [*numbered, asked])


def example(style: Style, form: Form, numbers: Numbers = "passages") -> tuple[str, str]:
    """A worked example: a question with its passages, and the response to it."""
    return opening(*_EXAMPLE, style, numbers), _EXAMPLE_RESPONSES[form]


_EXAMPLE = (
    "Who is the mother of the director of Amberfall ?",
    (
        Passage(id="", title="Stonegate", text="Stonegate is a film directed by Paul Hain ."),
        Passage(id="", title="Ida Roth", text="Ida Roth is a director . She is the daughter of Lena Roth ."),
        Passage(id="", title="Amberfall", text="Amberfall is a film directed by Ida Roth ."),
    ),
)
_EXAMPLE_RESPONSES: dict[Form, str] = {
    "three_part": write((2, 3), "Amberfall was directed by Ida Roth [3] . Her mother is Lena Roth [2] .", "Lena Roth"),
    "think": "<think>Ida Roth directed Amberfall . Her mother is Lena Roth .</think><answer>Lena Roth</answer>",
    "direct": "Lena Roth",
}


def explain_opening(question: Question, gold: Sequence[int], style: Style, numbers: Numbers = "passages") -> str:
    """The user's message that asks for the reasoning behind a known answer (ARENA, appendix D, SFT-reasoning)."""
    return "\n".join(
        [
            opening(question.text, question.context, style, numbers),
            f"Passages to use : {', '.join(f'[{number}]' for number in gold)}",
            f"Answer : {question.answers[0]}",
        ]
    )


EXPLAIN: dict[Style, str] = {
    "standard": """\
You are given a question, numbered passages, the numbers of the passages to use, and the right answer. Explain in a \
few sentences how the answer follows from these passages and from no others; after each claim comes the number of the \
passage that says it, such as [2]. Reply with the explanation alone.""",
    "compact": "Explain the answer from the passages .",
}

# SuRe (Kim et al., 2024): candidates, a summary for each that argues for it, then its validity and rank.

SURE_CANDIDATES = """\
You answer a question from numbered passages. Name exactly {count} different possible answers, the most plausible \
first, each on a line of its own and numbered, such as:
1. first possible answer
2. second possible answer
Each is a name, a date, a number, yes or no. Write nothing else."""
SURE_SUMMARY = """\
You are given a question, numbered passages, and one possible answer. Sum up in a few sentences what the passages say \
in favour of this answer. Reply with the summary alone."""
SURE_VALID = """\
You are given a question, a possible answer, and a summary that argues for it. Does the summary support the answer to \
the question? Reply with yes or no alone."""
SURE_BETTER = """\
You are given a question and two summaries that argue for different answers. Which of them says more that helps to \
answer the question? Reply with 1 or 2 alone."""


def sure_summary_opening(question: str, passages: Sequence[Passage], candidate: str) -> str:
    return f"{opening(question, passages)}\nPossible answer : {candidate}"


def sure_valid_opening(question: str, candidate: str, summary: str) -> str:
    return f"Question : {question}\nPossible answer : {candidate}\nSummary : {summary}"


def sure_better_opening(question: str, first: str, second: str) -> str:
    return f"Question : {question}\nSummary 1 : {first}\nSummary 2 : {second}"


# Self-ask (Press et al., 2023): the model asks itself follow-up questions before it answers.

FOLLOW_UP, FINAL = "Follow-up question :", "Final answer :"
SELF_ASK = f"""\
You answer a question from numbered passages by asking yourself simpler questions first, one at a time.
While you need to know more, reply with one line: {FOLLOW_UP} and a question. Its answer is then given to you.
As soon as you know enough, reply with one line: {FINAL} and {_SHORT}.
Example :
User : Question : Who is the mother of the director of Amberfall ?
You : {FOLLOW_UP} Who directed Amberfall ?
User : Intermediate answer : Ida Roth
You : {FOLLOW_UP} Who is the mother of Ida Roth ?
User : Intermediate answer : Lena Roth
You : {FINAL} Lena Roth"""


NO_MORE_FOLLOW_UPS = f"No further questions . Reply with {FINAL} now ."


def intermediate(answer: str) -> str:
    """Return self-ask's reply to a follow-up question."""
    return f"Intermediate answer : {answer}"


def _numbered(passages: Sequence[Passage], numbers: Numbers) -> list[str]:
    return [f"[{number}] {one.title} : {_text(one, number, numbers)}" for number, one in enumerate(passages, start=1)]


def _text(passage: Passage, number: int, numbers: Numbers) -> str:
    if numbers == "passages":
        return passage.text
    return " ".join(f"{sentence} [{number}]" for sentence in split_sentences(passage.text))
