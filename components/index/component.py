"""The index over what an environment searches in."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def index(
    run_dir: str,
    environment: str,
    retrieval: dict,
    corpus_digest: str,
    triples_digest: str,
    collection: dsl.Output[dsl.Dataset],
    graph_digest: str = "",
) -> NamedTuple("Outputs", [("searched_digest", str), ("index_digest", str)]):
    """Encode and index what a retrieval method searches; a killed build is resumed.

    Args:
        run_dir: The run directory.
        environment: Which retrieval method is used if the recipe names none, e.g. hotpot or 2wiki-kg.
        retrieval: Method, encoder and index (platform_sdk.config.retrieval).
        corpus_digest: Digest of the passages.
        triples_digest: Digest of the triples.
        collection: Method, names, size and digests of the collections.
        graph_digest: Digest of the knowledge hypergraph, where the retrieval method searches one.
    """
    import hashlib
    from dataclasses import asdict
    from pathlib import Path

    from platform_sdk.config.retrieval import RetrievalSpec
    from platform_sdk.kubeflow.component import describe, received
    from platform_sdk.retrieval.index import build_index
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    spec = RetrievalSpec.model_validate(received(retrieval))
    with step_run(run, "index") as step:
        built = build_index(run, spec, environment)
        digest = hashlib.sha256(f"{built.collection} {spec.index.model_dump_json()}".encode()).hexdigest()
        step.log_inputs(retrieval={"passages": corpus_digest, "triples": triples_digest, "graph": graph_digest})
        step.log_metrics({"index/rows": built.rows})
        step.record_digests(searched=built.corpus_digest, encoder=built.encoder_digest, index=digest)
        step.seal(*run.glob("index/service.json"), *run.glob("index/*/collections/*/**/data_*"))
        describe(
            collection,
            run / "index",
            digest=digest,
            parents=[*filter(None, (corpus_digest, triples_digest, graph_digest))],
            **asdict(built),
        )
    return built.corpus_digest, digest
