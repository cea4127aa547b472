"""The worked examples of the ``standard`` prompts: alternating texts of the environment and of the agent.

The people, films and places are made up, so that no example gives an answer away. A planner is shown a question
whose two sub-questions can be asked at once, and one whose second step needs the first.
"""

from __future__ import annotations

from platform_sdk.methods.mygo.grammar import NOTHING_FOUND

Texts = tuple[str, ...]

_BRIDGE = "Question : Who is the mother of the director of the film Amberfall?"
_COMPARISON = "Question : Are Norvale and Estermoor located in the same country?"
_FIRST, _NEXT = "I need the director of Amberfall first.", "Ida Roth directed Amberfall. Next I need her mother."
_BOTH = "I need the country of Norvale and the country of Estermoor."
_KNOWN = "<think>The mother of Ida Roth is Lena Roth. That answers the question.</think><answer>Lena Roth</answer>"
_EQUAL = "<think>Both are in Chile, so they are in the same country.</think><answer>yes</answer>"
_DIRECTOR, _MOTHER = "Who directed the film Amberfall?", "Who is the mother of Ida Roth?"
_COUNTRIES = ("In which country is Norvale located?", "In which country is Estermoor located?")

PLANNER_TEXT_BRIDGE: Texts = (
    _BRIDGE,
    f"<think>{_FIRST}</think><search>{_DIRECTOR}</search>",
    "Obs: The film Amberfall was directed by Ida Roth.",
    f"<think>{_NEXT}</think><search>{_MOTHER}</search>",
    "Obs: The mother of Ida Roth is Lena Roth.",
    _KNOWN,
)
PLANNER_TEXT_COMPARISON: Texts = (
    _COMPARISON,
    f"<think>{_BOTH}</think><search>{_COUNTRIES[0]}</search><search>{_COUNTRIES[1]}</search>",
    "Obs: Norvale is located in Chile.\nEstermoor is located in Chile.",
    _EQUAL,
)
PLANNER_KG_BRIDGE: Texts = (
    f"{_BRIDGE}\nCandidates : [0] Amberfall",
    f'<think>{_FIRST}</think><action>Search([0], "{_DIRECTOR}")</action>',
    "Obs: The film Amberfall was directed by Ida Roth.\nCandidates : [1] Ida Roth",
    f'<think>{_NEXT}</think><action>Search([1], "{_MOTHER}")</action>',
    "Obs: The mother of Ida Roth is Lena Roth.\nCandidates : [2] Lena Roth",
    _KNOWN,
)
PLANNER_KG_COMPARISON: Texts = (
    f"{_COMPARISON}\nCandidates : [0] Norvale [1] Estermoor",
    f'<think>{_BOTH}</think><action>Search([0], "{_COUNTRIES[0]}") Search([1], "{_COUNTRIES[1]}")</action>',
    "Obs: Norvale is located in Chile.\nEstermoor is located in Chile.\nCandidates : [2] Chile",
    _EQUAL,
)
# The last example is not an empty search, since workers copy it; and the selected index varies between examples.
WORKER_TEXT: Texts = (
    f"Question : {_MOTHER}\n"
    "[0] Ida Roth : Ida Roth is a photographer and film director. She was born to Lena Roth in Velm.\n"
    "[1] Velm : Velm is a town in the north of Chile.",
    "<think>Passage [0] says who her mother is.</think><select>[0]</select>"
    "<sentence>The mother of Ida Roth is Lena Roth.</sentence>",
    f"Question : {_DIRECTOR}\n"
    "[0] Ida Roth : Ida Roth is a photographer and film director. She was born to Lena Roth in Velm.\n"
    "[1] Amberfall : Amberfall is a 1958 drama film directed by Ida Roth.",
    "<think>Passage [1] says who directed Amberfall.</think><select>[1]</select>"
    "<sentence>The film Amberfall was directed by Ida Roth.</sentence>",
)
WORKER_KG: Texts = (
    f"Question : {_COUNTRIES[0]}\n[0] Norvale, population, 4120",
    f"<think>No fact says in which country Norvale is.</think><sentence>{NOTHING_FOUND}</sentence>",
    f"Question : {_MOTHER}\n[0] Ida Roth, mother, Lena Roth",
    "<think>Fact [0] says who her mother is.</think><select>[0]</select>"
    "<sentence>The mother of Ida Roth is Lena Roth.</sentence>",
    f"Question : {_DIRECTOR}\n[0] Amberfall, production company, Tall Tree\n[1] Amberfall, director, Ida Roth",
    "<think>Fact [1] says who directed Amberfall.</think><select>[1]</select>"
    "<sentence>The film Amberfall was directed by Ida Roth.</sentence>",
)
# Without the planner-worker split a single agent reads the raw materials, so its examples contain them.
AGENT_TEXT_BRIDGE: Texts = (
    _BRIDGE,
    f"<think>{_FIRST}</think><search>{_DIRECTOR}</search>",
    "Obs: [0] Amberfall : Amberfall is a 1958 drama film directed by Ida Roth.",
    f"<think>{_NEXT}</think><search>{_MOTHER}</search>",
    "Obs: [0] Ida Roth : Ida Roth is a photographer and film director. She was born to Lena Roth in Velm.",
    _KNOWN,
)
AGENT_TEXT_COMPARISON: Texts = (
    *PLANNER_TEXT_COMPARISON[:2],
    "Obs: [0] Norvale : Norvale is a port in the south of Chile.\n[1] Estermoor : Estermoor is a village in Chile.",
    _EQUAL,
)
AGENT_KG_BRIDGE: Texts = (
    *PLANNER_KG_BRIDGE[:2],
    "Obs: [0] Amberfall, director, Ida Roth\nCandidates : [1] Ida Roth",
    PLANNER_KG_BRIDGE[3],
    "Obs: [0] Ida Roth, mother, Lena Roth\nCandidates : [2] Lena Roth",
    _KNOWN,
)
AGENT_KG_COMPARISON: Texts = (
    *PLANNER_KG_COMPARISON[:2],
    "Obs: [0] Norvale, country, Chile\n[1] Estermoor, country, Chile\nCandidates : [2] Chile",
    _EQUAL,
)
