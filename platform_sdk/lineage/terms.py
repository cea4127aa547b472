"""Terms of licences of datasets and models, and the contradictions between them.

The table states what the text of a licence says, not which of its terms apply to a model that was trained on data or
from another model. That is a question of law, which this module does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from platform_sdk.config.struct import Struct
from platform_sdk.data.licences import GENERATED, UNKNOWN


class Terms(Struct):
    """Terms of one licence.

    Attributes:
        commercial: commercial use is permitted.
        adaptation: sharing of adapted material is permitted.
        share_alike: licences under which adapted material may be shared, the licence first; empty if any may be.
        conditions: other conditions of use or distribution, as a sentence fragment.
    """

    commercial: bool = True
    adaptation: bool = True
    share_alike: tuple[str, ...] = ()
    conditions: str = ""


_CREDIT = "credit of the author"
_BSD = "the copyright notice"
_GPL3 = ("GPL-3.0-only", "GPL-3.0-or-later")
TERMS = {
    "MIT": Terms(conditions=_BSD),
    "BSD-2-Clause": Terms(conditions=_BSD),
    "BSD-3-Clause": Terms(conditions=_BSD),
    "Apache-2.0": Terms(conditions="the licence text and a statement of changes"),
    "CC0-1.0": Terms(),
    "CC-BY-3.0": Terms(conditions=_CREDIT),
    "CC-BY-4.0": Terms(conditions=_CREDIT),
    "CC-BY-SA-3.0": Terms(share_alike=("CC-BY-SA-3.0", "CC-BY-SA-4.0"), conditions=_CREDIT),
    "CC-BY-SA-4.0": Terms(share_alike=("CC-BY-SA-4.0", *_GPL3), conditions=_CREDIT),
    "CC-BY-NC-3.0": Terms(commercial=False, conditions=_CREDIT),
    "CC-BY-NC-4.0": Terms(commercial=False, conditions=_CREDIT),
    "CC-BY-NC-SA-3.0": Terms(
        commercial=False, share_alike=("CC-BY-NC-SA-3.0", "CC-BY-NC-SA-4.0"), conditions=_CREDIT
    ),
    "CC-BY-NC-SA-4.0": Terms(commercial=False, share_alike=("CC-BY-NC-SA-4.0",), conditions=_CREDIT),
    "CC-BY-ND-4.0": Terms(adaptation=False, conditions=_CREDIT),
    "CC-BY-NC-ND-4.0": Terms(commercial=False, adaptation=False, conditions=_CREDIT),
    "ODC-By-1.0": Terms(conditions=_CREDIT),
    "ODbL-1.0": Terms(share_alike=("ODbL-1.0",), conditions=_CREDIT),
    "GPL-3.0-only": Terms(share_alike=("GPL-3.0-only",), conditions="the source"),
    "GPL-3.0-or-later": Terms(share_alike=("GPL-3.0-or-later", "GPL-3.0-only"), conditions="the source"),
    "llama2": Terms(
        conditions="Meta's acceptable use policy; no use to improve other language models; a licence from Meta above "
        "700 million monthly users"
    ),
    "llama3": Terms(
        conditions="Meta's acceptable use policy; no use to improve other language models; “Built with Meta Llama 3”, "
        "and names that begin with “Llama 3”; a licence from Meta above 700 million monthly users"
    ),
    **{
        name: Terms(
            conditions="Meta's acceptable use policy; “Built with Llama”, and names that begin with “Llama”; a "
            "licence from Meta above 700 million monthly users"
        )
        for name in ("llama3.1", "llama3.2", "llama3.3", "llama4")
    },
    "gemma": Terms(conditions="Google's prohibited use policy, passed on with every model derived from it"),
    "qwen-research": Terms(commercial=False, conditions="“Built with Qwen” or “Improved using Qwen”"),
}  # fmt: skip
"""Terms by SPDX id, or by the name that the Hugging Face Hub gives a model licence."""

_NAMES = {name.lower(): name for name in TERMS}


class LicenceFinding(Struct):
    """Contradiction, gap or condition of a dataset's or model's licence."""

    kind: Literal["conflict", "unknown", "condition"]
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def canonical(name: str) -> str:
    """Return a licence's name as in ``TERMS``, e.g. for ``apache-2.0`` or ``CC BY 4.0``; other names are unchanged."""
    return _NAMES.get("-".join(name.lower().split()), name.strip())


def findings_of(licences: Iterable[tuple[str, str]], stated: str = "") -> list[LicenceFinding]:
    """Return the findings on the licences of a model's data and base models, conflicts first.

    Args:
        licences: Thing and licence, e.g. ``("dataset hotpotqa", "CC-BY-SA-4.0")``.
        stated: The licence under which the model itself is offered; empty if there is none. A licence without
            commercial use is a conflict unless the model's licence excludes it too.
    """
    pairs = [pair for pair in dict.fromkeys(licences) if pair[1] != GENERATED]
    found = [*_own(pairs, canonical(stated)), *_between(pairs)]
    order = ("conflict", "unknown", "condition")
    return sorted(dict.fromkeys(found), key=lambda one: order.index(one.kind))


def _own(pairs: Iterable[tuple[str, str]], stated: str) -> Iterator[LicenceFinding]:
    """Yield the findings on each licence alone, and against the model's licence."""
    model = TERMS.get(stated)
    if stated and model is None:
        yield LicenceFinding(kind="unknown", text=f"the terms of the model's licence {stated} are not in the table")
    for thing, licence in pairs:
        terms = TERMS.get(licence)
        if terms is None:
            problem = "has no known licence" if licence == UNKNOWN else f"has the licence {licence}, not in the table"
            yield LicenceFinding(kind="unknown", text=f"{thing} {problem}")
            continue
        if not terms.commercial and (model is None or model.commercial):
            other = f", which the model's licence {stated} permits" if model else ""
            yield LicenceFinding(kind="conflict", text=f"{thing}: {licence} permits no commercial use{other}")
        if not terms.adaptation:
            yield LicenceFinding(kind="conflict", text=f"{thing}: {licence} permits no sharing of adapted material")
        if terms.share_alike:
            only = f"{thing}: {licence} permits adapted material under {' or '.join(terms.share_alike)} only"
            if stated and stated not in terms.share_alike:
                yield LicenceFinding(kind="conflict", text=f"{only}, but the model's licence is {stated}")
            elif not stated:
                yield LicenceFinding(kind="condition", text=only)
        if terms.conditions:
            yield LicenceFinding(kind="condition", text=f"{thing}: {licence} requires {terms.conditions}")


def _between(pairs: list[tuple[str, str]]) -> Iterator[LicenceFinding]:
    """Yield pairs of share-alike licences without a common licence for adapted material."""
    alike = [(thing, licence, set(TERMS[licence].share_alike)) for thing, licence in pairs if licence in TERMS]
    alike = [one for one in alike if one[2]]
    for number, (thing, licence, allowed) in enumerate(alike):
        for other, another, also in alike[number + 1 :]:
            if not allowed & also:
                text = f"{thing} ({licence}) and {other} ({another}) permit no common licence for adapted material"
                yield LicenceFinding(kind="conflict", text=text)
