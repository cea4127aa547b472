"""Sentences of an audit, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from platform_sdk.lineage.audit import Audit
from platform_sdk.lineage.overlap import KINDS, Overlap
from platform_sdk.tracking.findings import Verification


def headlines(audit: Audit) -> Iterator[str]:
    """Yield licences with the unknown ones first, the model, its runs, origins, and the verification."""
    for one in audit.licences:
        yield f"licence: {one.thing}: {one.licence} ({one.source})"
    yield f"model: {audit.model.digest} {', '.join(audit.model.names)}"
    for run in audit.runs:
        user, host = run.origin.get("user", "unknown"), run.origin.get("host", "unknown")
        commit = run.origin.get("commit") or "unknown"
        yield (
            f"trained: run {run.run} ({run.pipeline}, recipe {run.recipe}) by {user} on {host}, {run.started} to "
            f"{run.ended or 'unfinished'}; hopforge {run.origin.get('version', 'unknown')}, commit {commit[:10]}; "
            f"{run.seconds:.0f} s in steps, {run.gpu_hours:g} GPU hours"
        )
        yield f"  steps: {', '.join(run.steps)}"
    for node in audit.roots:
        yield f"from: {node}"
    for verification in audit.verifications:
        yield f"verification: {verification.run}: {outcome_of(verification)}"
        for finding in verification.findings:
            yield f"  {finding}"


def outcome_of(verification: Verification) -> str:
    """Return the outcome of a verification in words."""
    kinds = {finding.kind for finding in verification.findings}
    part = "" if verification.finished else ", finished steps only"
    word = "differs from its records" if kinds - {"not checkable"} else "not wholly checkable" if kinds else "whole"
    return word + part


def overlap_lines(overlap: Overlap, shown: int) -> Iterator[str]:
    """Yield the counts of each kind of overlap, and at most ``shown`` pairs of each kind."""
    yield (
        f"overlap of {overlap.evaluation} evaluation questions with {overlap.training} training questions "
        f"(near: similarity of at least {overlap.threshold:g})"
    )
    for kind in KINDS:
        yield f"  {kind}: {overlap.count(kind)}"
        for pair in [pair for pair in overlap.pairs if pair.kind == kind][:shown]:
            questions = f"{pair.evaluation_id}: {pair.evaluation} | {pair.training_id}: {pair.training}"
            yield f"    {pair.similarity:.3f} {questions}"
    yield gold_line(overlap)


def gold_line(overlap: Overlap) -> str:
    """Return the sentence on shared gold evidence."""
    return (
        f"  gold evidence was gold in training, too: all of it for {overlap.gold_all}, some for {overlap.gold_any} of "
        f"{overlap.gold_known} evaluation questions with gold passages"
    )
