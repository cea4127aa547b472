"""Extraction by rules: a sentence is a fact; its entities are the passage's title, names, dates and numbers.

Names are linked to titles of the corpus when the graph is merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from platform_sdk.graph.chunks import Chunk
from platform_sdk.graph.facts import Fact, Mention
from platform_sdk.records import Source

VERSION = 2

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} {_MONTH},? \d{{3,4}}|{_MONTH} \d{{1,2}}, ?\d{{3,4}}|{_MONTH},? \d{{4}}|\d{{1,2}} {_MONTH}|"
    rf"{_MONTH} \d{{1,2}}|(?:1\d|20)\d\ds?)\b"
)
_NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w-])")
# Possessive: a shorter word is never part of a longer name, and trying each length of a long word takes quadratic time.
_LETTER = r"[^\W\d_a-zß-öø-ÿ]"
_CAPITAL = rf"{_LETTER}[\w'’&-]*+(?:\.(?=\w)\w*+)*+\.?+"
_INSIDE = r"(?:of|the|de|da|do|dos|del|della|di|la|le|les|du|des|van|von|der|den|el|al|bin|ibn|for|&|[0-9]+)"
_WORD = re.compile(rf"{_CAPITAL}")
_SPAN = re.compile(rf"{_CAPITAL}(?: (?:{_INSIDE} ){{0,3}}{_CAPITAL}| [0-9]+(?=\b))*(?: \([^()]{{1,40}}\))?")
# Joined by words that usually separate two names: kept only if the whole is a title. No phrase begins after a capital
# letter: it would have begun with that letter. The second alternative skips the part of a capitalised word in which
# every later start would fail too: without it, a word such as A.A.A.A takes quadratic time.
_PHRASE = re.compile(
    rf"(?<!{_LETTER})(?:(?P<phrase>{_CAPITAL}(?:(?: (?:\w++|&)){{0,3}}[:,]? {_CAPITAL}){{1,5}})|"
    rf"{_LETTER}[\w'’&-]*+(?:\.(?=\w)\w*+(?!['’&-]))*+)"
)
_BRACKET_OR_POSSESSIVE = re.compile(r"(?: \([^()]*\)|['’]s)$")
# No name begins with these at any position.
_FIRST_WORD = re.compile(
    r"(?:a|an|the|he|she|it|they|we|i|you|his|her|its|their|our|my|your|this|that|these|"
    r"those|in|on|at|of|to|by|from|with|as|for|and|or|but|nor|so|yet|if|when|while|"
    r"where|which|who|whose|whom|what|why|how|there|here|then|after|before|during|until|"
    r"since|because|although|though|however|also|both|either|neither|some|many|most|all|each|"
    r"every|other|another|such|several|following|despite|between|among|under|over|into|"
    r"through|within|without|about|against|not|no|one|two|three|four|five|six|seven|eight|"
    r"nine|ten|first|second|third|later|today|now|according|unlike|like)\.?",
    re.IGNORECASE,
)
# No name begins with these at the start of a sentence.
_LEADING = (
    "is|are|was|were|does|did|has|had|have|could|would|should|shall|might|must|cannot|upon|throughout|whether|unless|"
    "whereas|whenever|therefore|thus|hence|nevertheless|moreover|furthermore|meanwhile|whilst|them|him|originally|"
    "initially|eventually|currently|formerly|previously|recently|finally|additionally|subsequently|usually"
)
_LEADING_WORD = re.compile(rf"(?:{_LEADING})\.?", re.IGNORECASE)
# These alone are not names either; before another name they can be part of it (Will, Down, May).
_LONE_WORD = re.compile(
    rf"(?:{_LEADING}|be|been|being|do|can|will|may|having|just|even|still|once|soon|ever|never|always|very|too|well|near|"
    r"up|down|out|off|above|below|behind|beside|besides|beyond|across|along|around|toward|towards|via|per|than|except|"
    r"instead|indeed|perhaps|amid|amongst|itself|himself|herself|themselves|yes|others|none|any|few|much|more|only|again|"
    r"often|sometimes|together|due|prior|notable|born|based|founded|located|situated|established|formed|built|created|"
    r"written|directed|produced|released|published|recorded|introduced|owned|named|known|set|made|given|led|using|"
    r"starting|beginning)\.?",
    re.IGNORECASE,
)


def extract(chunk: Chunk) -> tuple[Fact, ...]:
    """Return a fact for each sentence of a chunk."""
    passage = chunk.passage
    return tuple(
        Fact(
            text=passage.text[start:end],
            entities=tuple(dict.fromkeys(mentions(passage.text[start:end], passage.title))),
            source=Source(passage=passage.id, start=start, end=end),
        )
        for start, end in chunk.sentences
    )


def mentions(sentence: str, title: str) -> Iterator[Mention]:
    """Yield the entities of a sentence, and the title of its passage, the usual subject of its sentences."""
    if title.strip():
        yield Mention(name=title, rule="passage")
    rest = sentence
    for pattern, kind in ((_DATE, "date"), (_NUMBER, "number")):
        for match in pattern.finditer(rest):
            if kind == "date" or len(match[0]) > 1:
                yield Mention(name=match[0], type=kind, rule=kind)
        if kind == "date":
            rest = pattern.sub(lambda match: "\n" * len(match[0]), rest)
    spans: set[str] = set()
    phrases: set[str] = set()
    for match in _SPAN.finditer(rest):
        name = _without_stop(match[0])
        spans.add(_bare(name, is_first=not spans and not re.search(r"\w", rest[: match.start()])))
        phrases.add(name)
    phrases |= {_without_stop(match["phrase"]) for match in _PHRASE.finditer(rest) if match["phrase"]}
    yield from (Mention(name=name, rule="span") for name in sorted(spans - {""}))
    yield from (Mention(name=name, rule="phrase") for name in sorted(phrases - spans) if " " in name)


def _bare(span: str, is_first: bool) -> str:
    """Return a span without the function words before its name; empty without a name.

    Args:
        is_first: True if the span begins a sentence.
    """
    words = _BRACKET_OR_POSSESSIVE.sub("", span).split(" ")
    length = len(words)
    while words and (
        _FIRST_WORD.fullmatch(words[0]) or (is_first and _LEADING_WORD.fullmatch(words[0])) or not _WORD.match(words[0])
    ):
        words.pop(0)
    name = " ".join(words)
    return "" if (is_first or len(words) < length) and _LONE_WORD.fullmatch(name) else name


def _without_stop(name: str) -> str:
    """Remove the full stop of a sentence, but not of an initial."""
    return name.removesuffix(".") if re.search(r"(?:\w{2}|['’]s)\.$", name) else name
