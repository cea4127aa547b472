"""Independent verifier of the log, written from docs/log.md by someone who had not seen hopforge's code."""

from __future__ import annotations

import hashlib
import json

EVENTS = ("run ended", "model approved", "approval withdrawn", "files removed", "run removed")
STATUSES = ("FINISHED", "FAILED", "KILLED")
FIELDS = ["event", "run", "start", "head", "status", "weights", "model", "version", "path", "digest"]
FIELDS += ["who", "note", "at", "key", "signature", "sequence", "time", "team", "previous", "hash"]
REQUIRED = ("event", "run", "start", "head", "sequence", "time", "previous", "hash")


def _has_type(field: str, value: object) -> bool:
    """True if the value has its field's type and is not empty; true and 1.0 are no numbers of an entry."""
    if field == "sequence":
        return type(value) is int
    return isinstance(value, str) and value != ""


def _read_entry(line: bytes) -> dict | None:
    """The entry of one line without its line feed, or None if the line is not in the documented format."""
    try:
        text = line.decode("utf-8")
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or list(entry) != [field for field in FIELDS if field in entry]:
        return None
    if any(field not in entry for field in REQUIRED):
        return None
    if not all(_has_type(field, value) for field, value in entry.items()):
        return None
    if entry["event"] not in EVENTS or entry.get("status", "FINISHED") not in STATUSES:
        return None
    # Any other spelling of the same object, also one with a repeated key, differs from this one.
    if json.dumps(entry, ensure_ascii=False, separators=(",", ":")) != text:
        return None
    content = {field: value for field, value in entry.items() if field != "hash"}
    canonical = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if entry["hash"] != hashlib.sha256(canonical.encode("utf-8")).hexdigest():
        return None
    return entry


def read_log(data: bytes) -> tuple[list[dict], bool]:
    """The entries before the first invalid line, and whether all complete lines are valid."""
    *lines, _ = data.split(b"\n")  # a kill cut the last line short
    entries: list[dict] = []
    statements: list[list] = []
    previous = "0" * 64
    for line in lines:
        entry = _read_entry(line)
        if entry is None or entry["sequence"] != len(entries) or entry["previous"] != previous:
            return entries, False
        statement = [entry.get(field) for field in (*FIELDS[: FIELDS.index("signature")], "team")]
        if statement in statements:
            return entries, False
        statements.append(statement)
        entries.append(entry)
        previous = entry["hash"]
    return entries, True


def verify_run(data: bytes, run: str, start: str, heads: list[str]) -> str:
    """Compare a finished run with the log: "log altered", "run rewritten", "not checkable" or "whole"."""
    entries, valid = read_log(data)
    if not valid:
        return "log altered"
    # A rewritten run can have another first entry, so the directory's name counts too. Ends of a run that was
    # removed with a record do not count for another run that has its name now.
    removed = [entry.get("start") for entry in entries if entry["event"] == "run removed" and entry.get("run") == run]
    recorded = []
    for entry in entries:
        same_name = entry.get("run") == run and entry.get("start") not in removed
        if entry["event"] == "run ended" and (entry.get("start") == start or same_name):
            recorded.append(entry.get("head"))
    if any(head not in heads for head in recorded):
        return "run rewritten"
    if entries and heads[-1] not in recorded:
        return "not checkable"
    return "whole"
