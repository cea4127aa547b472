"""Settings of EviPath. Defaults are the paper's, if it gives them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct, equal_to

Role = Literal["planner", "executor"]
PROMPTS_WITHOUT_TEACHER = (
    "a teacher with standard prompts gets worked paths instead; set agent.prompts: compact, or leave it out"
)
PROMPTS_WITHOUT_PATHS = "compact prompts have no worked paths; leave it out"
NO_SENTENCES = "a knowledge graph has triples and no sentences; set synthesis.unit: passage"
NO_GOLD = "the paths of a teacher that searches have no gold evidence; leave it out, or set synthesis.mode: abductive"


class AgentSpec(Struct):
    """The agent that learns: a planner and executors."""

    iteration_limit: int = Field(
        8, ge=2, le=1000, description="maximum turns of the planner per question, malformed ones included"
    )
    sub_questions: int = Field(5, ge=1, le=1000, description="maximum sub-questions of one turn")
    top_k: int = Field(5, ge=1, le=10_000, description="passages or triples that an executor reads")
    planner_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of one planner turn")
    executor_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of an executor's turn")
    prompts: Literal["standard", "compact"] = Field("standard", description="compact: for very small models")


class SynthesisSpec(Struct):
    """Settings of synthesising reasoning paths."""

    mode: Literal["abductive", "answer-only", "deductive"] = Field(
        "abductive",
        description="input of an LLM teacher. abductive: answer and gold evidence; answer-only: the answer; "
        "deductive: neither. "
        "Without the evidence the teacher searches like the agent.",
    )
    unit: Literal["passage", "sentence"] = Field(
        "passage",
        description="unit of evidence in texts; sentence (the paper's choice, table 11) needs a dataset that annotates "
        "supporting sentences: hotpotqa, 2wikimultihopqa",
    )
    tau: float = Field(
        0.9,
        ge=-1,
        le=1,
        description="evidence is selected if its cosine similarity to the sub-answer is above this (1: equal)",
    )
    shown: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="maximum pieces of evidence in an executor's prompt, more if more are selected; null: all of the "
        "question's",
    )
    distractors: int = Field(
        8, ge=0, le=10_000, description="passages drawn from the corpus for a question without its own passages"
    )
    questions: int | None = Field(None, ge=1, le=10_000_000, description="questions drawn; null: all (scaling curve)")
    max_tokens: int = Field(
        512,
        ge=1,
        le=1_000_000,
        description="maximum tokens of one turn of an abductive LLM teacher; a deductive one has the agent's limits",
    )
    attempts: int = Field(
        1, ge=1, le=1000, description="attempts of an LLM teacher at a question, until a path passes every check"
    )

    def rules_fault(self) -> Fault | None:
        """Return the fault if rules cannot write such paths, else None."""
        if self.mode != "abductive":
            hidden = f"{self.mode} hides the evidence that the rules are made of; use teacher: llm"
            return Fault(("synthesis", "mode"), hidden)
        if self.attempts > 1:
            return Fault(("synthesis", "attempts"), "the rules write the same path at every attempt; leave it at 1")
        return None

    def model_fault(self, temperature: float) -> Fault | None:
        """Return the fault if a language model with this temperature repeats its path, else None."""
        if self.attempts == 1 or temperature > 0:
            return None
        equal = f"{self.attempts} attempts at temperature 0 are all the same; set teaching.temperature above 0"
        return Fault(("synthesis", "attempts"), equal)


class LearningSpec(Struct):
    """Settings of learning from the kept paths."""

    roles: tuple[Role, ...] = Field(("planner", "executor"), min_length=1, description="planner, executor, or both")
    examples: int | None = Field(None, ge=1, le=10_000_000, description="paths drawn; null: all (scaling curve)")
    unanswerable: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of sub-questions that are also trained without the gold evidence, so that the executor "
        "learns to report that nothing was found; the paper: 0",
    )
    teacher_prompts: bool = Field(
        False,
        exclude_if=equal_to(False),
        description="train on the paths also with the compact prompts of an abductive teacher, which show answer and "
        "gold evidence; makes a small model that can be teacher_model in every synthesis.mode",
    )

    @property
    def needing_gold(self) -> tuple[str, ...]:
        """The settings in use that need paths with gold evidence."""
        return tuple(name for name in ("unanswerable", "teacher_prompts") if getattr(self, name))


class EvaluationSettings(EvaluationSpec):
    """An evaluation run: one attempt at every evaluation question."""

    demonstrate: tuple[Role, ...] = Field(
        (),
        description="roles with worked paths in their prompts (the paper's untrained rows); not with compact prompts",
    )
