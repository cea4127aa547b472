"""The knowledge hypergraph of a run's corpus."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def graph(
    run_dir: str,
    graph: dict,
    corpus_digest: str,
    triples_digest: str,
    hypergraph: dsl.Output[dsl.Dataset],
) -> NamedTuple("Outputs", [("graph_digest", str)]):
    """Extract facts from the corpus and merge them into a graph; a killed build is resumed per chunk.

    Args:
        run_dir: The run directory.
        graph: Extractor, model and chunks (platform_sdk.config.graph).
        corpus_digest: Digest of the passages.
        triples_digest: Digest of the triples.
        hypergraph: Digest and counts of the graph.
    """
    from pathlib import Path
    from typing import NamedTuple

    from platform_sdk.config.graph import GraphSpec
    from platform_sdk.graph.build import build
    from platform_sdk.graph.graph import MANIFEST
    from platform_sdk.graph.sources import graph_folder
    from platform_sdk.kubeflow.component import describe, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    spec = GraphSpec.model_validate(received(graph))
    with step_run(run, "graph") as step:
        manifest = build(run, spec, job_runner(run)).graph.manifest
        counts = {name: getattr(manifest, name) for name in ("entities", "hyperedges", "mentions", "malformed")}
        step.log_inputs(retrieval={"passages": corpus_digest, "triples": triples_digest})
        step.log_metrics({f"graph/{name}": count for name, count in counts.items()})
        step.record_digests(graph=manifest.digest)
        step.seal(*(graph_folder(run) / name for name in (MANIFEST, *manifest.files)))
        describe(
            hypergraph, graph_folder(run), digest=manifest.digest, parents=[corpus_digest, triples_digest], **counts
        )
    outputs = NamedTuple("Outputs", [("graph_digest", str)])
    return outputs(manifest.digest)
