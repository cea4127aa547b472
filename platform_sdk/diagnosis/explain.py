"""Explanation of a run: its findings, the cause first."""

from __future__ import annotations

from platform_sdk.config.struct import Struct
from platform_sdk.diagnosis import pod_rules, queue_rules, run_rules, step_rules
from platform_sdk.diagnosis.facts import Facts, RunState
from platform_sdk.diagnosis.findings import Finding, Kind, Rule

RULES: tuple[Rule, ...] = (
    step_rules.disk_full,
    pod_rules.out_of_memory,
    step_rules.out_of_memory,
    step_rules.unreadable_file,
    step_rules.loss_not_finite,
    step_rules.retriever_down,
    step_rules.process_killed,
    pod_rules.node_lost,
    pod_rules.evicted,
    queue_rules.deadline,
    queue_rules.refused,
    pod_rules.image_not_pulled,
    pod_rules.volume_not_bound,
    pod_rules.unschedulable,
    queue_rules.preempted,
    queue_rules.queued,
    queue_rules.check_pending,
    queue_rules.not_managed,
    run_rules.delivery_failed,
    run_rules.nothing_accepted,
    run_rules.equal_rewards,
)
"""Rules in the order of precedence: earlier ones name a cause, later ones often its consequences."""

GENERAL: tuple[Rule, ...] = (
    step_rules.first_error,
    run_rules.run_stopped,
    run_rules.pipelines_failed,
    run_rules.run_failed,
)
"""Rules for a run whose end no other rule explains; the first with a finding is used."""

ORDER: tuple[Kind, ...] = ("failure", "waiting", "worthless")


class Explanation(Struct):
    """State of a run and its findings, the cause first; ``well`` is False if the run failed, waits or is worthless."""

    run: str
    state: RunState
    well: bool
    findings: tuple[Finding, ...]


def explain(facts: Facts) -> Explanation:
    """Apply all rules to the facts of a run."""
    found = [finding for rule in RULES for finding in rule(facts)]
    stopped = facts.state in ("FAILED", "KILLED")
    if stopped and not any(finding.kind == "failure" for finding in found):
        found += next((general for rule in GENERAL if (general := list(rule(facts)))), [])
    found.sort(key=lambda finding: ORDER.index(finding.kind))  # stable: precedence within a kind
    return Explanation(run=facts.run, state=facts.state, well=not found and not stopped, findings=tuple(found))
