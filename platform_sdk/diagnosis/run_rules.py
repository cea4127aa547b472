"""Rules for whole runs: stopped runs, MLflow, and training that teaches nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from platform_sdk.diagnosis.facts import Facts, TrainingPoint
from platform_sdk.diagnosis.findings import Evidence, Finding
from platform_sdk.run_dir import PhaseDir

UPDATES = 2
"""Fewer updates with equal rewards may be chance."""


def nothing_accepted(facts: Facts) -> Iterator[Finding]:
    """Find phases that sampled rollouts and accepted none for training."""
    for chosen in facts.selections:
        if chosen.rollouts and not chosen.accepted:
            formed = "" if chosen.well_formed is None else f", {chosen.well_formed:.0%} well-formed"
            least = "" if chosen.threshold is None else f", threshold {chosen.threshold:g}"
            yield Finding(
                rule="nothing_accepted", kind="worthless", where=chosen.phase,
                cause=f"no rollout of {chosen.phase} was accepted, so its training changes nothing",
                evidence=(Evidence(object=_figures(facts, chosen.phase, PhaseDir.figures),
                                   text=f"0 of {chosen.rollouts} rollouts accepted{formed}{least}"),),
                remedy="lower selection.initial_threshold, raise selection.attempts, or start from a stronger model"
                if chosen.well_formed else
                "start from a model that writes the method's format (train it on demonstrations first)",
            )  # fmt: skip


def equal_rewards(facts: Facts) -> Iterator[Finding]:
    """Find phases in which all rollouts of every group have the same reward, so that no advantage is left."""
    phases: dict[str, list[TrainingPoint]] = defaultdict(list)
    for point in facts.training:
        if point.equal_groups is not None:
            phases[point.phase].append(point)
    for phase, points in phases.items():
        if len(points) >= UPDATES and all(point.equal_groups == 1.0 for point in points):
            rewards = sorted({point.mean_reward for point in points if point.mean_reward is not None})
            shown = f", mean reward {rewards[0]:g} to {rewards[-1]:g}" if rewards else ""
            yield Finding(
                rule="equal_rewards", kind="worthless", where=phase,
                cause=f"every group of {phase} has equal rewards, so no update changes the policy",
                evidence=(Evidence(object=_figures(facts, phase, PhaseDir.updates), line=points[-1].number,
                                   text=f"share of groups without variance 1 in all {len(points)} updates{shown}"),),
                remedy="sample more rollouts for each question, raise the temperature, take easier or harder "
                "questions, or a reward with more than two values",
            )  # fmt: skip


def _figures(facts: Facts, phase: str, file: str) -> str:
    """Return the source of a phase's figures: MLflow for a run on a cluster."""
    return f"{phase}/{file}" if facts.place == "local" else f"metrics of {phase} in MLflow"


def delivery_failed(facts: Facts) -> Iterator[Finding]:
    """Find runs whose records did not reach MLflow."""
    delivery = facts.delivery
    if delivery is None or delivery.complete or not delivery.error:
        return
    ended = facts.state != "RUNNING"
    store, _, error = delivery.error.removeprefix("MLflow store ").partition(": ")
    later = ", then repeat the command of the run: only the delivery is repeated"
    yield Finding(
        rule="delivery_failed", kind="failure" if ended else "waiting", where=f"MLflow at {store}",
        cause=f"MLflow at {store} {'lacks' if ended else 'does not get'} the run's records: {error}",
        evidence=(Evidence(object=delivery.log, line=delivery.line, time=facts.ended, text=delivery.error),),
        remedy="start MLflow, or correct MLFLOW_TRACKING_URI and its user and password"
        + (later if ended else "; the run goes on and delivers later"),
    )  # fmt: skip


def run_stopped(facts: Facts) -> Iterator[Finding]:
    """Find runs that a person or the system stopped."""
    if facts.state != "KILLED":
        return
    if facts.place == "cluster":
        state = Evidence(object=f"run {facts.run} in Kubeflow Pipelines", time=facts.ended, text="state CANCELED")
        yield Finding(
            rule="run_stopped", kind="failure", where="Kubeflow Pipelines", evidence=(state,),
            cause="the run was terminated in Kubeflow Pipelines",
            remedy="retry the run in the UI; it resumes",
        )  # fmt: skip
        return
    recorded = bool(facts.ended)
    step = next((each for each in reversed(facts.steps) if each.state != "PENDING"), None)
    where = f"step {step.name}" if step else "its start"
    how = "was interrupted (SIGINT or SIGTERM)" if recorded else "ended without recording its end (SIGKILL, power loss)"
    text = "ended: KILLED" if recorded else "a start without an end, and no process holds the lock"
    last = Evidence(object="tracking/run.jsonl", time=facts.ended or facts.started, text=text)
    yield Finding(
        rule="run_stopped", kind="failure", where=where, evidence=(last,),
        cause=f"the run's process {how} in {where}",
        remedy="start the run again with the same command; it resumes",
    )  # fmt: skip


def pipelines_failed(facts: Facts) -> Iterator[Finding]:
    """Find runs that Kubeflow Pipelines ended although none of their steps and jobs failed."""
    failed = [step for step in facts.steps if step.state == "FAILED"] + [j for j in facts.jobs if j.state == "Failed"]
    if facts.place == "cluster" and facts.state == "FAILED" and not failed:
        text = facts.error or "it reports no error"
        yield Finding(
            rule="pipelines_failed", kind="failure", where="Kubeflow Pipelines",
            cause=f"Kubeflow Pipelines ended the run although none of its steps failed: {text}",
            evidence=(Evidence(object=f"run {facts.run} in Kubeflow Pipelines", time=facts.ended, text=text),),
            remedy="look at the run's Workflow and at the pods of its drivers (kubectl get pods -l "
            f"pipeline/runid={facts.run}), then retry the run in the UI; it resumes",
        )  # fmt: skip


def run_failed(facts: Facts) -> Iterator[Finding]:
    """Report the error of a failed run, whatever it is."""
    if facts.state == "FAILED":
        yield Finding(
            rule="run_failed", kind="failure", where=facts.run,
            cause=f"the run failed: {facts.error or 'it recorded no error'}",
            evidence=(Evidence(object="tracking/run.jsonl", time=facts.ended, text="ended: FAILED"),),
            remedy="correct what the error names, then start the run again; it resumes",
        )  # fmt: skip
