"""Audit of a model: licences, origin, training, scores, approvals, verification, overlap of questions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.lineage.graph import Graph
from platform_sdk.lineage.model_facts import ModelFacts, evaluations, model_facts, read_questions
from platform_sdk.lineage.overlap import Encode, Overlap, overlap_of
from platform_sdk.lineage.targets import run_named
from platform_sdk.lineage.terms import LicenceFinding, findings_of
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.log.approvers import Approvers, decisions_on, shown
from platform_sdk.tracking.verify import verify_run
from platform_sdk.tracking.verify_log import LogCheck


class Approval(Struct):
    """Decision on a version of the model.

    ``fault`` gives the reason why the decision does not carry its approver's signature; empty if it does, or if
    signatures were not compared.
    """

    model: str
    version: str
    decision: str
    time: str
    fault: str


class Audit(ModelFacts):
    """Page of a model. ``licence`` is the licence under which the model is offered; empty if none was named."""

    target: str
    licence: str
    licence_findings: tuple[LicenceFinding, ...]
    approvals: tuple[Approval, ...]
    verifications: tuple[Verification, ...]
    overlap: Overlap | None

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all runs that the model stands on."""
        return round(sum(run.gpu_hours for run in self.runs), 6)


def audit_model(
    target: str,
    starts: Iterable[str],
    graph: Graph,
    folder: Path,
    *,
    licence: str = "",
    approvers: Approvers | None = None,
    encode: Encode | None = None,
) -> Audit:
    """Audit the model that a target names; for a run, its last trained model.

    Args:
        target: The target's name.
        starts: The digests of the nodes that the target names.
        graph: The graph of the runs in ``folder``.
        folder: The folder of the run directories.
        licence: The licence under which the model is offered.
        approvers: Keys with which signatures of approvals are compared.
        encode: Sentence encoder for the overlap of questions; without it, only their characters are compared.

    Raises:
        UserError: the target is no model and no run with one, or a file of questions or scores is damaged.
    """
    model = _model_of(target, list(starts), graph, folder)
    facts = model_facts(model, graph, folder)
    part = graph.reachable([model], down=False)
    scores = {node.digest for node in evaluations(model, graph)}
    inputs = {edge.source for edge in graph.edges if edge.target in scores}
    training = [node for node in part.nodes.values() if "training questions" in node.kind]
    evaluation = [graph.nodes[digest] for digest in inputs if "evaluation questions" in graph.nodes[digest].kind]
    unread = list(facts.unread)
    trained_on, evaluated_on = (read_questions(nodes, folder, unread) for nodes in (training, evaluation))
    log = LogCheck(folder.resolve(), approvers=approvers)
    of_log = log.verification()
    overlap = overlap_of(trained_on, evaluated_on, encode=encode) if trained_on and evaluated_on else None
    verified = tuple(verify_run(folder / run.run, log) for run in facts.runs)
    fields = {name: getattr(facts, name) for name in ModelFacts.model_fields if name != "unread"}
    return Audit(
        **fields, target=target, licence=licence, unread=tuple(unread),
        licence_findings=tuple(findings_of(((one.thing, one.licence) for one in facts.licences), licence)),
        approvals=tuple(_approvals(model, log, approvers)),
        verifications=verified if of_log is None else (*verified, of_log), overlap=overlap,
    )  # fmt: skip


def _approvals(weights: str, log: LogCheck, approvers: Approvers | None) -> Iterable[Approval]:
    for entry in decisions_on(log.chain.entries, weights) if log.is_sound else ():
        fault = "" if approvers is None else approvers.fault(entry)
        yield Approval(model=entry.model, version=entry.version, decision=shown(entry), time=entry.time, fault=fault)


def _model_of(target: str, starts: list[str], graph: Graph, folder: Path) -> str:
    models = [digest for digest in starts if graph.nodes[digest].kind == "model"]
    if len(models) == 1:
        return models[0]
    run = run_named(target, folder)
    trained = [edge.target for edge in graph.edges if edge.run == run and graph.nodes[edge.target].kind == "model"]
    if not trained:
        raise UserError(
            f"{target}: neither a model nor a run that trained one; name a run, or a model's digest or path"
        )
    return trained[-1]
