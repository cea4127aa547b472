"""Search index of an environment."""

from __future__ import annotations

from typing import Any

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs
from platform_sdk.run_dir import RunDir


class Inputs(StepInputs):
    """Environment, retrieval settings, and digests of the searched data.

    ``environment`` decides the retrieval method if the recipe names none. ``graph_digest`` is empty if the
    run builds no hypergraph.
    """

    environment: str
    retrieval: dict[str, Any]
    corpus_digest: str
    triples_digest: str
    graph_digest: str = ""


class Outputs(StepOutputs):
    searched_digest: str
    index_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Encode and index the data of a retrieval method; a killed build resumes."""
    import hashlib
    from dataclasses import asdict

    from platform_sdk.config.retrieval import RetrievalSpec
    from platform_sdk.evaluation.cards import collection_card
    from platform_sdk.retrieval.index import build_index
    from platform_sdk.tracking import step_run

    run_dir = inputs.run_dir
    digests = {"passages": inputs.corpus_digest, "triples": inputs.triples_digest, "graph": inputs.graph_digest}
    spec = RetrievalSpec.model_validate(inputs.retrieval)
    with step_run(run_dir, "index") as step:
        built = build_index(run_dir, spec, inputs.environment)
        digest = hashlib.sha256(f"{built.collection} {spec.index.model_dump_json()}".encode()).hexdigest()
        step.log_inputs(retrieval=digests)
        step.log_metrics({"index/rows": built.rows})
        step.record_digests(searched=built.corpus_digest, encoder=built.encoder_digest, index=digest)
        step.seal(*run_dir.glob(RunDir.service), *run_dir.glob("index/*/collections/*/**/data_*"))
        facts = {"digest": digest, "parents": [*filter(None, digests.values())], **asdict(built)}
        return Finished(
            Outputs(searched_digest=built.corpus_digest, index_digest=digest), collection_card(facts), facts
        )
