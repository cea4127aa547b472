"""Export of kept examples as chats for TRL (``messages``) and LLaMA-Factory (``messages``, ``sharegpt``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from platform_sdk.errors import UserError
from platform_sdk.files import read_object
from platform_sdk.methods.evipath.dialogues import Chat, chats
from platform_sdk.methods.evipath.prompts import Style
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.settings import AgentSpec
from platform_sdk.methods.evipath.synthesis import AGENT, EXAMPLES
from platform_sdk.outputs import writing_output
from platform_sdk.record_files import check_digest, read_jsonl
from platform_sdk.run_dir import PhaseDir

Format = Literal["messages", "sharegpt"]
_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def write_chats(
    source: Path, output: Path, format: Format, style: Style | None = None, *, altered: Sequence[str] = ()
) -> int:
    """Write the chats of a run, or of a folder with examples, and return their number.

    Args:
        style: style of the instructions; None for the style of the run's agent.
        altered: reports of the run's altered files, which are then read nevertheless; each line contains them.

    Raises:
        UserError: the examples are missing or were altered.
    """
    found = [folder / EXAMPLES for folder in (source, source / "synthesis") if (folder / EXAMPLES).is_file()]
    if not found:
        raise UserError(f"{source}: holds no {EXAMPLES}; run hopforge synthesize first, or name its --workdir")
    outcome = found[0].with_name(PhaseDir.sample)
    if outcome.exists() and not altered:
        check_digest(found[0], Example, read_object(outcome)["carry"]["examples"])
    agent = _agent(found[0].parent)
    count, warning = 0, {"altered": list(altered)} if altered else {}
    with writing_output(output) as stream:
        for example in read_jsonl(found[0], Example):
            for chat in chats(example, style or agent.prompts, agent.sub_questions, ("planner", "executor")):
                stream.write(json.dumps(line(chat, format) | warning, ensure_ascii=False).encode() + b"\n")
                count += 1
    return count


def line(chat: Chat, format: Format) -> dict[str, Any]:
    """Return one line of the file."""
    content: dict[str, Any] = {"id": chat.id, "role": chat.role}
    if format == "messages":
        return content | {"messages": chat.messages}
    turns = [{"from": _SHAREGPT[message["role"]], "value": message["content"]} for message in chat.messages]
    return content | {"conversations": turns}


def _agent(folder: Path) -> AgentSpec:
    """Return the settings of the agent for which the examples were checked."""
    path = folder / AGENT
    return AgentSpec.model_validate(read_object(path)) if path.exists() else AgentSpec()
