"""Independent verifier of runs, written from docs/manifest.md by someone who had not seen hopforge's code."""

from __future__ import annotations

import hashlib
import json

MANIFEST, RUN_JOURNAL, ENVIRONMENT = "manifest.jsonl", "tracking/run.jsonl", "tracking/environment.json"
FIELDS = ("sequence", "time", "event", "digests", "files", "inputs", "outputs", "licences", "settings", "journal",
          "used", "jobs", "origin", "seeds", "images", "previous", "hash")  # fmt: skip
START, *ENDS = "run started", "run ended: FINISHED", "run ended: FAILED", "run ended: KILLED"
UNSEALED = ("done", "plan.json", "cluster.json", "tracking/digests.json", "tracking/verified.json", "tracking/lock",
            "tracking/mlflow.json", "tracking/follower.log", "tracking/removed.jsonl")  # fmt: skip
ENDINGS = ("-step.json", "-server.json", ".seconds.json", "/begun.json", "/drafts.jsonl", "/malformed.jsonl",
           "/server.log")  # fmt: skip


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def read_object(text: bytes) -> dict:
    """The JSON object in `text`, empty if there is none."""
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def milliseconds(time: str) -> int:
    """Milliseconds since 1970 of a time like 2026-11-25T09:42:55.171+00:00."""
    year, month, day, hour, minute, second = (int(time[at : at + 2]) for at in (2, 5, 8, 11, 14, 17))
    year, month = (2000 + year, month - 3) if month > 2 else (1999 + year, month + 9)  # years that begin in March
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + int(time[20:23])


def read_manifest(data: bytes) -> tuple[list[dict], bool]:
    """The entries with the right hash, with their heads, and whether the chain is valid."""
    entries, previous, valid = [], "0" * 64, data.endswith(b"\n")
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
        entry = read_object(line)
        event, digest = str(entry.get("event")), sha256(canonical({key: entry[key] for key in entry if key != "hash"}))
        known = event == START or (number > 0 and (event in ENDS or event.startswith("step ")))
        follows = entry.get("sequence") == number and entry.get("previous") == previous and entry.get("hash") == digest
        ordered = list(entry) == [key for key in FIELDS if entry.get(key) or key in ("sequence", "digests")]
        written = json.dumps(entry, ensure_ascii=False, separators=(",", ":")) == line.decode(errors="replace")
        valid, previous = valid and known and follows and ordered and written, digest
        if entry.get("hash") == digest:
            entries.append(entry | {"event": event, "head": f"{number}:{digest}"})
    return entries, valid


def journal_of(entry: dict) -> str:
    return f"tracking/steps/{entry['event'][5:]}.jsonl" if entry["event"].startswith("step ") else RUN_JOURNAL


def ended_line(entry: dict, found: dict) -> bytes:
    """The line that follows what `entry` seals of its journal, with the failure that `found` has if the digest fits."""
    line = {"event": "ended", "manifest_head": entry["head"], "time": milliseconds(entry["time"])}
    line["status"] = entry["event"].removeprefix("run ended: ") if entry["event"] in ENDS else "FINISHED"
    failure = {key: found.get(key) for key in ("error", "step", "code", "oom_kills")}
    fits = entry["digests"].get("failure", "") in ("", sha256(canonical(failure)))
    line |= failure if "failure" in entry["digests"] else {}
    return json.dumps(line, sort_keys=True).encode() + b"\n" if fits else b""


def may_be_unsealed(path: str) -> bool:
    listed = path in UNSEALED or path.startswith(("logs/", "index/")) or path.endswith(ENDINGS)
    listed |= path.startswith(("outputs/", "graph/extract-")) and path.endswith(".json")
    return listed or "/." in f"/{path}" or any(name in path for name in ("/extractions/", "/processes/", "/checkpoint"))


def verify(files: dict[str, bytes]) -> set[str]:
    """The paths that are altered, added or missing."""
    entries, valid = read_manifest(files.get(MANIFEST, b""))
    last = {journal_of(entry): entry for entry in entries}  # the entry of each step, and a start or end for the run
    found = {path for path in files if path.startswith("tracking/steps/") and path.endswith(".jsonl")}
    journals = {path: files.get(path, b"") for path in found | {RUN_JOURNAL, *last}}
    lines = {path: [read_object(text) for text in data.split(b"\n")[:-1]] for path, data in journals.items()}
    heads = {path: {str(line["manifest_head"]) for line in lines[path] if "manifest_head" in line} for path in journals}
    valid = valid and set().union(*heads.values()) <= {entry[key] for entry in entries for key in ("head", "hash")}
    named, seals = set() if valid else {MANIFEST}, {}
    for path, data in journals.items():
        size = last.get(path, {}).get("journal", {}).get("bytes", 0)
        after = [line.get("event") for line in lines[path][data[:size].count(b"\n") :]]
        ended = size > 0 and (path == RUN_JOURNAL or "started" not in after)  # a step that started again has not
        events = all(isinstance(line.get("event"), str) and type(line.get("time")) is int for line in lines[path])
        fits = not (valid and ended) or data[size:] == ended_line(last[path], (lines[path] or [{}])[-1])
        if not events or not fits or (ended and data[-1:] != b"\n") or (path == RUN_JOURNAL and path not in files):
            named.add(path)
    for number, entry in enumerate(entries):
        path, journal = journal_of(entry), entry.get("journal", {"bytes": 0, "sha256": sha256(b"")})
        unstated = (number == 0 or entry["event"] in ENDS) and not heads[RUN_JOURNAL] & {entry["head"], entry["hash"]}
        if valid and (unstated or sha256(journals[path][: journal["bytes"]]) != journal["sha256"]):
            named.add(path)
        if entry["event"] == START or (entry is last[path] if path != RUN_JOURNAL else valid and entry is entries[-1]):
            seals |= {output["path"]: output["sha256"] for output in entry.get("outputs", [])} | entry.get("files", {})
    starts = [entry["digests"] for entry in entries if entry["event"] == START]
    finished = valid and entries[-1]["event"] == "run ended: FINISHED"
    if finished and "environment" in starts[-1]:
        seals[ENVIRONMENT] = starts[-1]["environment"]
    recipe = sha256(canonical(read_object(files.get("recipe.json", b""))))
    if valid and any(start.get("recipe") != recipe for start in starts):
        named.add("recipe.json")
    indexes = {path.split("/")[1] for path in files if path.startswith("index/")}
    for path, digest in seals.items():
        rebuilt = path.startswith("index/") and path.count("/") > 1 and path.split("/")[1] not in indexes
        differs = path not in files or sha256(files[path]) != digest
        if differs and not rebuilt and not path.startswith("/"):
            named.add(path)
    if finished and not any(path == MANIFEST or path.startswith("tracking/") for path in named):
        others = files.keys() - {MANIFEST, "recipe.json", ENVIRONMENT, *seals, RUN_JOURNAL, *last}
        named |= {path for path in others if not may_be_unsealed(path)}
    return named
