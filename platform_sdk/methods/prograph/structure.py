r"""Structure reward of a turn (ProGraph-R1, equations 12 to 14).

With V(G_t) the entities retrieved by turn t: r_con = |V(G_t) ∩ V(s_<t)| / |V(G_t)|, r_ans = |V(G_t) ∩ V(y*)| /
|V(G_t)|, r_struct = r_con + r_ans; all are 0 if nothing was retrieved. Choices that the paper leaves open:

- V(G_t) are the entities of the evidence, by their names (``entity_names``, or ``entities`` where those are names
  themselves, as a triple's); a piece that has none, e.g. a passage, counts as its title.
- Names are compared in lower case, without punctuation and the articles a, an, the. A final qualifier in brackets,
  which questions and answers do not contain, is removed before searching texts.
- An entity is in V(s_<t) if its name is in the text before turn t as a sequence of whole words (question, the agent's
  turns, knowledge), or if an earlier turn retrieved it. So no entity linker is needed.
- With repeated evidence counted once, only entities of newly retrieved evidence count in the numerators: repeated
  searches earn nothing. The paper counts them again.
- An entity is in V(y*) if its name is in an accepted answer as a sequence of whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from platform_sdk.records import Evidence, Turn

_WORD = re.compile(r"\w+")
_BRACKET = re.compile(r"\s*\([^()]*\)\s*$")
_ARTICLES = frozenset({"a", "an", "the"})


def with_structure(answers: Sequence[str], turns: Sequence[Turn], *, count_repeats: bool = True) -> tuple[Turn, ...]:
    """Return the turns of a dialogue with the structure reward of every turn that searched.

    Args:
        count_repeats: count evidence retrieved by earlier turns again.
    """
    gold, text, known, seen = _padded(answers), "", set[str](), set[str]()
    scored = list(turns)
    for place, turn in enumerate(turns):
        if turn.speaker == "agent" and turn.queries:
            reply = turns[place + 1].evidence if place + 1 < len(turns) else ()
            found = entities(reply)
            counted = found if count_repeats else entities(item for item in reply if item.id not in seen)
            connected = sum(name in known or f" {spoken} " in text for name, spoken in counted.items())
            rewards = _rewards(len(found), connected, sum(f" {spoken} " in gold for spoken in counted.values()))
            scored[place] = turn.model_copy(update={"rewards": rewards})
            known |= found.keys()
            seen |= {item.id for item in reply}
        text += _padded([turn.text])
    return tuple(scored)


def entities(evidence: Iterable[Evidence]) -> dict[str, str]:
    """Return V(G_t), the distinct entities of the evidence: their normalised names, and their names in texts."""
    names = [name for item in evidence for name in (item.entity_names or item.entities or (item.title,))]
    return {normal: _normalised(_BRACKET.sub("", name)) or normal for name in names if (normal := _normalised(name))}


def _rewards(found: int, connected: int, answering: int) -> dict[str, float]:
    con, ans = (connected / found, answering / found) if found else (0.0, 0.0)
    return {"con": con, "ans": ans, "struct": con + ans}


def _normalised(text: str) -> str:
    return " ".join(word for word in _WORD.findall(text.lower()) if word not in _ARTICLES)


def _padded(texts: Iterable[str]) -> str:
    """Return the normalised texts with a space around each word and a separator between the texts."""
    return "".join(f" {_normalised(text)} |" for text in texts)
