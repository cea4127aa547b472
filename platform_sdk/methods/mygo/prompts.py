"""Prompts of the agent. All wording is the project's own.

Two styles say the same things: ``standard`` for instruction-tuned models, ``compact`` for small models
that cannot afford long instructions. Worked examples belong to each role; they are shown while sampling the
warm-up trajectories and left out afterwards (Mujica-MyGO, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.methods.mygo import examples
from platform_sdk.methods.mygo.grammar import NOTHING_FOUND

Style = Literal["standard", "compact"]
Message = dict[str, str]


@dataclass(frozen=True)
class RolePrompt:
    """An instruction and worked examples (alternating environment and agent texts).

    ``as_turns``: they are shown as turns of the dialogue that already took place, rather than as text within the
    instruction. A chat model takes up a form that it seems to have used far better than one that is described to it.
    """

    instruction: str
    example: tuple[str, ...]
    as_turns: bool = False

    def turns(self, *, demonstrate: bool) -> tuple[str, ...]:
        """The texts between the instruction and the first message."""
        return self.example if demonstrate and self.as_turns else ()

    def system(self, *, demonstrate: bool) -> str:
        """Return the instruction, with the worked example unless it is shown as turns."""
        if not demonstrate or self.as_turns:
            return self.instruction
        speakers = ("User", "You")
        transcript = "\n".join(f"{speakers[i % 2]} : {text}" for i, text in enumerate(self.example))
        return f"{self.instruction}\nExample :\n{transcript}"


_PLANNER_EXAMPLE_TEXT = (
    "Question : Who is the mother of the director of Amberfall ?",
    "<think>I do not know the director yet .</think><search>Who directed Amberfall ?</search>",
    "Obs: The director of Amberfall is Ida Roth .",
    "<think>Next I need the mother of Ida Roth .</think><search>Who is the mother of Ida Roth ?</search>",
    "Obs: The mother of Ida Roth is Lena Roth .",
    "<think>I know enough .</think><answer>Lena Roth</answer>",
)
_PLANNER_EXAMPLE_KG = (
    "Question : Who is the mother of the director of Amberfall ?\nCandidates : [0] Amberfall",
    '<think>I do not know the director yet .</think><action>Search([0], "Who directed Amberfall ?")</action>',
    "Obs: The director of Amberfall is Ida Roth .\nCandidates : [1] Ida Roth",
    "<think>Next I need the mother of Ida Roth .</think>"
    '<action>Search([1], "Who is the mother of Ida Roth ?")</action>',
    "Obs: The mother of Ida Roth is Lena Roth .\nCandidates : [2] Lena Roth",
    "<think>I know enough .</think><answer>Lena Roth</answer>",
)
_WORKER_EXAMPLE_TEXT = (
    "Question : Who directed Amberfall ?\n"
    "[0] Ida Roth : Ida Roth is a person . Lena Roth gave birth to Ida Roth .\n"
    "[1] Amberfall : Amberfall is a film . It was directed by Ida Roth .",
    "<think>The director of Amberfall stands in [1] .</think><select>[1]</select>"
    "<sentence>The director of Amberfall is Ida Roth .</sentence>",
)
_WORKER_EXAMPLE_KG = (
    "Question : Who directed Amberfall ?\n[0] Amberfall, studio, Tall Tree\n[1] Amberfall, director, Ida Roth",
    "<think>The director of Amberfall stands in [1] .</think><select>[1]</select>"
    "<sentence>The director of Amberfall is Ida Roth .</sentence>",
)
# Without the split one agent reads the raw materials itself, so that its example shows them.
_AGENT_EXAMPLE_TEXT = (
    *_PLANNER_EXAMPLE_TEXT[:2],
    "Obs: [0] Amberfall : Amberfall is a film . It was directed by Ida Roth .",
    _PLANNER_EXAMPLE_TEXT[3],
    "Obs: [0] Ida Roth : Ida Roth is a person . Lena Roth gave birth to Ida Roth .",
    _PLANNER_EXAMPLE_TEXT[5],
)
_AGENT_EXAMPLE_KG = (
    *_PLANNER_EXAMPLE_KG[:2],
    "Obs: [0] Amberfall, director, Ida Roth\nCandidates : [1] Ida Roth",
    _PLANNER_EXAMPLE_KG[3],
    "Obs: [0] Ida Roth, mother, Lena Roth\nCandidates : [2] Lena Roth",
    _PLANNER_EXAMPLE_KG[5],
)

_PLANNER_STANDARD = """\
You plan how to answer a complex question. You cannot look anything up yourself: you hand simple sub-questions \
to assistants, who search and report one sentence each.
Every turn starts with your thoughts in <think>…</think>: sum up what is known so far and judge whether it is enough.
{act}
If it is enough, end with <answer>…</answer>: only the short answer (a name, a date, a number, yes or no), no sentence.
{several} A sub-question must be understandable alone: use names, never "he" or "the former".
Write nothing outside the tags."""
_PLANNER_ACT_TEXT = "If it is not enough, ask sub-questions, each in its own <search>…</search>."
_PLANNER_ACT_KG = """\
You explore a knowledge graph from numbered candidate entities; entities that are found become new candidates.
If it is not enough, write <action>Search([i], "sub-question")</action>, where [i] is the candidate whose facts answer \
the sub-question."""
_WORKER_STANDARD_TEXT = """\
You answer one simple question from numbered passages.
First think in <think>…</think>: what is asked, and which passages say it.
Then choose these passages by their index, such as <select>[0]</select>; write <select>[-1]</select> if none helps, \
and answer from your own knowledge.
Then answer in one declarative sentence that repeats the question's words: <sentence>…</sentence>.
Write nothing outside the tags."""
_WORKER_STANDARD_KG = f"""\
You answer one simple question from numbered facts, each written as "head, relation, tail".
First think in <think>…</think>: what is asked, and which facts say it.
Then choose these facts by their index, such as <select>[0][2]</select>, \
and answer in one declarative sentence that repeats the question's words: <sentence>…</sentence>.
If no fact helps, write no selection, only <sentence>{NOTHING_FOUND}</sentence> after your thoughts.
Write nothing outside the tags."""
_AGENT_STANDARD = """\
You answer a complex question by searching. Every turn starts with your thoughts in <think>…</think>: \
sum up what you have read and judge whether it is enough.
{act}
If it is enough, end with <answer>…</answer>: only the short answer (a name, a date, a number, yes or no), no sentence.
{several} What is found is shown to you. \
Write nothing outside the tags."""

_COMPACT: dict[tuple[str, Medium], RolePrompt] = {
    ("planner", "text"): RolePrompt("Plan : search or answer .", _PLANNER_EXAMPLE_TEXT),
    ("planner", "kg"): RolePrompt("Plan : visit a candidate or answer .", _PLANNER_EXAMPLE_KG),
    ("worker", "text"): RolePrompt("Read : select passages and answer .", _WORKER_EXAMPLE_TEXT),
    ("worker", "kg"): RolePrompt("Read : select facts and answer .", _WORKER_EXAMPLE_KG),
    ("agent", "text"): RolePrompt("Plan and read : search or answer .", _AGENT_EXAMPLE_TEXT),
    ("agent", "kg"): RolePrompt("Plan and read : visit a candidate or answer .", _AGENT_EXAMPLE_KG),
}

# The last example is imitated most: the step from one sub-question to the next.
_EXAMPLES: dict[tuple[str, Medium], tuple[tuple[str, ...], ...]] = {
    ("planner", "text"): (examples.PLANNER_TEXT_COMPARISON, examples.PLANNER_TEXT_BRIDGE),
    ("planner", "kg"): (examples.PLANNER_KG_COMPARISON, examples.PLANNER_KG_BRIDGE),
    ("worker", "text"): (examples.WORKER_TEXT,),
    ("worker", "kg"): (examples.WORKER_KG,),
    ("agent", "text"): (examples.AGENT_TEXT_COMPARISON, examples.AGENT_TEXT_BRIDGE),
    ("agent", "kg"): (examples.AGENT_KG_COMPARISON, examples.AGENT_KG_BRIDGE),
}


def role_prompt(style: Style, role: str, medium: Medium, *, max_questions: int) -> RolePrompt:
    """The prompt of a role; ``max_questions`` sub-questions may be asked at a time (1 is the chain ablation)."""
    if style == "compact":
        return _COMPACT[role, medium]
    several = (
        "Ask exactly one sub-question per turn."
        if max_questions == 1
        else f"Ask several sub-questions in one turn when none needs another's result; ask {max_questions} at most."
    )
    act = _PLANNER_ACT_TEXT if medium == "text" else _PLANNER_ACT_KG
    if role == "worker":
        instruction = _WORKER_STANDARD_TEXT if medium == "text" else _WORKER_STANDARD_KG
    elif role == "planner":
        instruction = _PLANNER_STANDARD.format(act=act, several=several)
    else:
        instruction = _AGENT_STANDARD.format(act=act, several=several)
    # The comparison asks two sub-questions at once.
    shown = _EXAMPLES[role, medium] if max_questions > 1 else _EXAMPLES[role, medium][-1:]
    return RolePrompt(instruction, tuple(text for example in shown for text in example), as_turns=True)
