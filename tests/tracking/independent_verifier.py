"""A verifier of run directories written from docs/manifest.md alone: it imports nothing of hopforge."""

from __future__ import annotations

import hashlib
import json

OWN = ("done", "recipe.json", "plan.json", "cluster.json", "manifest.jsonl", "tracking/environment.json",
       "tracking/run.jsonl", "tracking/digests.json", "tracking/verified.json", "tracking/lock",
       "tracking/mlflow.json", "tracking/follower.log", "tracking/removed.jsonl")  # fmt: skip
ENDS = ("/begun.json", "-step.json", ".seconds.json", "/drafts.jsonl", "/malformed.jsonl")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def compact(value: object, **options: bool) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, **options).encode()


def entry_of(line: bytes) -> dict | None:
    """Return the entry of a line, if its hash is right and it is written in the one way."""
    try:
        entry = json.loads(line)
        body = {name: value for name, value in entry.items() if name != "hash"}
        right = entry["hash"] == sha(compact(body, sort_keys=True)) and compact(entry) == line
        return entry if right and isinstance(entry["sequence"], int) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def milliseconds(time: str) -> int:
    """Return a time such as 2026-11-23T15:46:58.682+00:00 as milliseconds since 1970."""
    year, month, day = int(time[:4]), int(time[5:7]), int(time[8:10])
    year, month = (year - 1, month + 12) if month < 3 else (year, month)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719469
    seconds = int(time[11:13]) * 3600 + int(time[14:16]) * 60 + int(time[17:19])
    return (days * 86400 + seconds) * 1000 + int(time[20:23])


def events_of(content: bytes) -> list[dict] | None:
    try:
        events = [json.loads(line) for line in content.split(b"\n")[:-1]]
        good = all(isinstance(e["event"], str) and isinstance(e["time"], int) for e in events)
        return events if good and content[-1:] in (b"", b"\n") else None
    except (ValueError, TypeError, KeyError):
        return None


def verify(files: dict[str, bytes]) -> set[str]:
    """Return the names of the files of a finished run that are altered, missing or added."""
    bad: set[str] = set()
    lines = files.get("manifest.jsonl", b"").split(b"\n")
    entries = [entry for entry in map(entry_of, lines[:-1]) if entry]
    previous = "0" * 64
    for number, entry in enumerate(entries):
        if (entry["sequence"], entry["previous"]) != (number, previous):
            bad.add("manifest.jsonl")
        previous = entry["hash"]
    if not entries or lines[-1] or len(entries) < len(lines) - 1:
        bad.add("manifest.jsonl")
    entries.sort(key=lambda entry: entry["sequence"])
    heads = {f"{entry['sequence']}:{entry['hash']}" for entry in entries}
    steps = {entry["event"][5:]: entry for entry in entries if entry["event"].startswith("step ")}
    sealed = {o["path"]: o["sha256"] for entry in steps.values() for o in entry.get("outputs", ())}
    journals = {f"tracking/steps/{step}.jsonl": entry for step, entry in steps.items()}
    last = entries[-1] if entries else {"event": ""}
    if last["event"].startswith("run ended: "):
        journals["tracking/run.jsonl"] = last
    named: set[str] = set()
    for name in {*journals, "tracking/run.jsonl", *(n for n in files if n.startswith("tracking/steps/"))}:
        if name not in files:
            bad |= (
                {name} if (name in journals and "manifest.jsonl" not in bad) or name == "tracking/run.jsonl" else set()
            )
            continue
        events = events_of(files[name])
        if events is None:
            bad.add(name)
        else:
            named |= {event["manifest_head"] for event in events if event.get("manifest_head")}
    if named - heads:
        bad.add("manifest.jsonl")
    if "manifest.jsonl" not in bad:
        for name, entry in journals.items():
            content, seal = files.get(name, b""), entry["journal"]
            status = entry["event"][11:] if name == "tracking/run.jsonl" else "FINISHED"
            head = f"{entry['sequence']}:{entry['hash']}"
            end = {"event": "ended", "manifest_head": head, "status": status, "time": milliseconds(entry["time"])}
            ended = json.dumps(end, sort_keys=True).encode() + b"\n"
            if sha(content[: seal["bytes"]]) != seal["sha256"] or content[seal["bytes"] :] != ended:
                bad.add(name)
        sealed |= {o["path"]: o["sha256"] for o in last.get("outputs", ())}
    starts = [entry for entry in entries if entry["event"] == "run started"]
    sealed |= {o["path"]: o["sha256"] for entry in starts for o in entry.get("outputs", ())}
    if starts:
        sealed["tracking/environment.json"] = starts[-1]["digests"]["environment"]
        try:
            recipe = sha(compact(json.loads(files["recipe.json"]), sort_keys=True))
        except (ValueError, KeyError):
            recipe = ""
        if recipe not in {entry["digests"]["recipe"] for entry in starts}:
            bad.add("recipe.json")
    for name, digest in sealed.items():
        if not name.startswith("/") and name not in journals and sha(files.get(name, b"\0")) != digest:
            bad.add(name)
    if not any(name.startswith(("manifest.jsonl", "tracking/")) for name in bad):
        for name in files:
            own = name in OWN or name.endswith(ENDS) or name.startswith(("logs/", "index/"))
            hidden = any(part.startswith(".") for part in name.split("/"))
            if not (own or hidden or name in sealed or name in journals):
                bad.add(name)
    return bad
