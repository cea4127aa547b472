"""The prompting baselines of several calls: SuRe and self-ask (ARENA, section 4.3).

Both end with the answer alone. The first dialogue is the main trajectory; it calls the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from platform_sdk.agents.sections import marked
from platform_sdk.agents.speaker import Speaker
from platform_sdk.methods.arena import prompts
from platform_sdk.methods.arena.grammar import without_thoughts
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Evidence, Outcome, Passage, Question, Trajectory, given_evidence
from platform_sdk.sampling.rollout import Agent, Gather

_CANDIDATE = re.compile(r"\d+\s*[.)]\s*(\S.*)")


@dataclass(frozen=True)
class Conversation:
    """The dialogues of a rollout: the one with the answer, the others, and how it ended."""

    trajectory: Trajectory
    others: tuple[Trajectory, ...] = ()
    outcome: Outcome = "answered"


@dataclass(frozen=True)
class _Aside:
    """A dialogue with one reply; ``text`` is None if the context was full."""

    trajectory: Trajectory
    text: str | None


def sure(speaker: Speaker, question: Question, passages: tuple[Passage, ...], spec: AgentSpec) -> Agent[Conversation]:
    """SuRe (Kim et al., 2024): candidates, a summary in favour of each, then the best supported one.

    A candidate's score is 1 if its summary is judged to support it, plus the number of pairwise wins of its summary
    against other candidates' summaries in both orders; a split verdict counts one half. Ties go to the first candidate.
    """
    text = question.text
    given = given_evidence(passages)
    instruction = prompts.SURE_CANDIDATES.format(count=spec.candidates)
    dialogue = speaker.dialogue(instruction, prompts.opening(text, passages), evidence=given)
    named = yield from speaker.reply(dialogue, "candidates")
    candidates = _candidates(without_thoughts(named.text, spec.form) if named else "")[: spec.candidates]
    if not candidates:
        if named is not None:
            dialogue.note_malformed("no numbered candidate")
        return Conversation(
            dialogue.trajectory("agent", "agent"), outcome="context_limit" if named is None else "iteration_limit"
        )
    summaries: list[_Aside] = yield _asides(
        speaker,
        prompts.SURE_SUMMARY,
        {f"summary-{n}": prompts.sure_summary_opening(text, passages, c) for n, c in enumerate(candidates)},
        given,
    )
    said = [summary.text or "" for summary in summaries]
    checks: list[_Aside] = yield _asides(
        speaker,
        prompts.SURE_VALID,
        {f"valid-{n}": prompts.sure_valid_opening(text, c, said[n]) for n, c in enumerate(candidates)},
    )
    pairs = list(permutations(range(len(candidates)), 2))
    duels: list[_Aside] = yield _asides(
        speaker,
        prompts.SURE_BETTER,
        {f"better-{i}-{j}": prompts.sure_better_opening(text, said[i], said[j]) for i, j in pairs},
    )
    scores = [float(_verdict(check.text, r"yes|no") == "yes") for check in checks]
    for (i, j), duel in zip(pairs, duels, strict=True):
        # Each pair is compared in both orders, against position bias.
        match _verdict(duel.text, r"1|2"):
            case "1":
                scores[i] += 0.5
            case "2":
                scores[j] += 0.5
            case _:
                pass
    best = max(range(len(candidates)), key=lambda n: scores[n])
    asides = tuple(aside.trajectory for aside in (*summaries, *checks, *duels))
    dialogue.note_asked(calls=[aside.id for aside in asides])
    return Conversation(dialogue.trajectory("agent", "agent", answer=candidates[best]), asides)


def self_ask(
    speaker: Speaker, question: Question, passages: tuple[Passage, ...], spec: AgentSpec
) -> Agent[Conversation]:
    """Self-ask (Press et al., 2023): follow-up questions one by one, each answered from the passages by the policy."""
    given = given_evidence(passages)
    dialogue = speaker.dialogue(prompts.SELF_ASK, prompts.opening(question.text, passages), evidence=given)
    asides: list[_Aside] = []
    answer: str | None = None
    outcome: Outcome = "iteration_limit"
    for turn in range(spec.follow_ups + 1):
        reply = yield from speaker.reply(dialogue, f"turn-{turn}")
        if reply is None:
            outcome = "context_limit"
            break
        said = without_thoughts(reply.text, spec.form)
        asked, answer = marked(said, prompts.FOLLOW_UP), marked(said, prompts.FINAL)
        if answer is not None:
            outcome = "answered"
            break
        if asked is None:
            dialogue.note_malformed(f"neither {prompts.FOLLOW_UP} nor {prompts.FINAL}")
            break
        if turn == spec.follow_ups:
            break
        aside = yield from _aside(
            speaker,
            f"follow-up-{turn}",
            prompts.instruction(spec.prompts, "direct", passages=bool(passages)),
            prompts.opening(asked, passages, spec.prompts),
            given,
        )
        asides.append(aside)
        dialogue.note_asked([asked], [aside.trajectory.id])
        told = prompts.intermediate((aside.text or "").strip() or "unknown")
        dialogue.tell(told if turn + 1 < spec.follow_ups else f"{told}\n{prompts.NO_MORE_FOLLOW_UPS}")
    return Conversation(
        dialogue.trajectory("agent", "agent", answer=answer), tuple(aside.trajectory for aside in asides), outcome
    )


def _asides(
    speaker: Speaker, instruction: str, openings: Mapping[str, str], evidence: tuple[Evidence, ...] = ()
) -> Gather:
    """Sample a reply to each opening concurrently, in dialogues with these ids."""
    return Gather(tuple(_aside(speaker, id, instruction, text, evidence) for id, text in openings.items()))


def _aside(speaker: Speaker, place: str, system: str, opening: str, evidence: Sequence[Evidence] = ()) -> Agent[_Aside]:
    dialogue = speaker.dialogue(system, opening, evidence=evidence)
    reply = yield from speaker.reply(dialogue, place)
    text = without_thoughts(reply.text, "direct") if reply else None
    return _Aside(dialogue.trajectory(place, "worker", answer=text), text)


def _candidates(text: str) -> list[str]:
    """Return the texts of the numbered lines without duplicates."""
    lines: Sequence[str] = text.splitlines()
    found = [match[1].strip() for line in lines if (match := _CANDIDATE.fullmatch(line.strip()))]
    return list(dict.fromkeys(found))


def _verdict(text: str | None, words: str) -> str | None:
    """Return the first word of a reply if it is one of the requested ones."""
    found = re.match(rf"\W*({words})\b", (text or "").lower())
    return found[1] if found else None
