"""The knowledge hypergraph of a run's corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs
from platform_sdk.steps.base import job_runner

if TYPE_CHECKING:
    from platform_sdk.processes.launch import StepProcesses


class Inputs(StepInputs):
    """Extractor, model and chunks (``config.graph.GraphSpec``), and digests of passages and triples."""

    graph: dict[str, Any]
    corpus_digest: str
    triples_digest: str


class Outputs(StepOutputs):
    graph_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Extract facts from the corpus and merge them into a graph; a killed build resumes at the next chunk."""
    from platform_sdk.config.graph import GraphSpec
    from platform_sdk.evaluation.cards import graph_card
    from platform_sdk.graph.build import build
    from platform_sdk.graph.graph import MANIFEST
    from platform_sdk.graph.sources import Sources, graph_folder
    from platform_sdk.tracking import step_run

    run_dir = inputs.run_dir
    with step_run(run_dir, "graph") as step:
        manifest = build(run_dir, GraphSpec.model_validate(inputs.graph), job_runner(step)).graph.manifest
        counts = {name: getattr(manifest, name) for name in ("entities", "hyperedges", "mentions", "malformed")}
        step.log_inputs(retrieval={"passages": inputs.corpus_digest, "triples": inputs.triples_digest})
        step.log_metrics({f"graph/{name}": count for name, count in counts.items()})
        step.record_digests(graph=manifest.digest)
        step.seal(
            *(graph_folder(run_dir) / name for name in (MANIFEST, *manifest.files)), *Sources(run_dir).added_files()
        )
        facts = {"digest": manifest.digest, "parents": [inputs.corpus_digest, inputs.triples_digest], **counts}
        return Finished(Outputs(graph_digest=manifest.digest), graph_card(counts, manifest.digest), facts)


def processes(inputs: Inputs) -> list[StepProcesses]:
    """Return the processes that become a job on a cluster.

    Their specification is named by the digest of the data, which is unknown before the step; the name ends in *.
    """
    from platform_sdk.config.graph import GraphSpec
    from platform_sdk.graph.build import extraction_file, extraction_processes

    return [extraction_processes(extraction_file(inputs.run_dir, "*"), GraphSpec.model_validate(inputs.graph))]
