"""Sentences of an audit, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from platform_sdk.lineage.audit import Approval, Audit
from platform_sdk.lineage.overlap import Overlap
from platform_sdk.tracking.findings import Verification

NO_JUDGEMENT = "Whether a licence's terms apply to a model that was trained on data is not decided here."


def headlines(audit: Audit) -> Iterator[str]:
    """Yield conflicts, gaps and conditions of licences, then the model, its approvals, runs, origins, verification."""
    for finding in audit.licence_findings:
        yield f"licence {finding}"
    for one in audit.licences:
        yield f"licence: {one.thing}: {one.licence}, revision {one.revision} ({one.source})"
    yield f"model: {audit.model.digest} {', '.join(audit.model.names)}"
    for decision in audit.approvals:
        yield f"approval: {approval_line(decision)}"
    if not audit.approvals:
        yield "approval: none in the log"
    for run in audit.runs:
        user, host = run.origin.get("user", "unknown"), run.origin.get("host", "unknown")
        commit = run.origin.get("commit") or "unknown"
        yield (
            f"trained: run {run.run} ({run.pipeline}, recipe {run.recipe}) by {user} on {host}, {run.started} to "
            f"{run.ended or 'unfinished'}; hopforge {run.origin.get('version', 'unknown')}, commit {commit[:10]}; "
            f"{run.seconds:.0f} s in steps, {run.gpu_hours:g} GPU hours"
        )
        yield f"  steps: {', '.join(run.steps)}"
    yield f"cost: {audit.gpu_hours:g} GPU hours in {len(audit.runs)} runs"
    for node in audit.roots:
        yield f"from: {node}"
    for verification in audit.verifications:
        yield f"verification: {verification.run}: {outcome_of(verification)}"
        for difference in verification.findings:
            yield f"  {difference}"


def approval_line(approval: Approval) -> str:
    """Return a decision in words."""
    fault = f"; not proven: {approval.fault}" if approval.fault else ""
    return f"{approval.model}/{approval.version}: {approval.decision} ({approval.time}){fault}"


def outcome_of(verification: Verification) -> str:
    """Return the outcome of a verification in words."""
    return verification.outcome + ("" if verification.finished else ", finished steps only")


def overlap_lines(overlap: Overlap, shown: int) -> Iterator[str]:
    """Yield the counts of each kind of overlap, and at most ``shown`` pairs of each kind."""
    yield (
        f"overlap of {overlap.evaluation} evaluation questions with {overlap.training} training questions "
        f"({thresholds_line(overlap)})"
    )
    for kind in overlap.kinds:
        yield f"  {kind}: {overlap.count(kind)}"
        for pair in [pair for pair in overlap.pairs if pair.kind == kind][:shown]:
            questions = f"{pair.evaluation_id}: {pair.evaluation} | {pair.training_id}: {pair.training}"
            yield f"    {pair.similarity:.3f} {questions}"
    yield gold_line(overlap)


def thresholds_line(overlap: Overlap) -> str:
    """Return the smallest similarities of near questions."""
    return ", ".join(f"{kind}: at least {value:g}" for kind, value in overlap.thresholds.items())


def gold_line(overlap: Overlap) -> str:
    """Return the sentence on shared gold evidence."""
    known = overlap.gold_known
    share = f" ({overlap.gold_all / known:.1%} and {overlap.gold_any / known:.1%})" if known else ""
    return (
        f"  gold evidence was gold in training, too: all of it for {overlap.gold_all}, some for {overlap.gold_any} of "
        f"{known} evaluation questions with gold passages{share}"
    )
