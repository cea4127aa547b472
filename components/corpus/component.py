"""Questions, passages and triples of a dataset, in the run directory."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def corpus(
    run_dir: str,
    dataset: dict,
    data_dir: str,
    data: dsl.Output[dsl.Dataset],
) -> NamedTuple(
    "Outputs", [("corpus_digest", str), ("train_digest", str), ("eval_digest", str), ("triples_digest", str)]
):
    """Read a dataset in its official format, or generate it, and write it as records.

    Args:
        run_dir: The run directory.
        dataset: Which dataset (platform_sdk.config.dataset).
        data_dir: What the dataset's relative paths are relative to; empty for none.
        data: Where the records are, their digests and counts.
    """
    from dataclasses import asdict
    from pathlib import Path

    from platform_sdk.config.dataset import DatasetSpec
    from platform_sdk.data.dataset import prepare
    from platform_sdk.kubeflow.component import describe, received
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    spec = DatasetSpec.model_validate(received(dataset))
    with step_run(run, "corpus") as step:
        made = prepare(spec, Path(data_dir) if data_dir else None, run)
        for part, context in (
            ("train", "training"),
            ("eval", "evaluation"),
            ("passages", "retrieval"),
            ("triples", "retrieval"),
        ):
            step.log_dataset(
                part,
                digest=getattr(made, part),
                source=f"{spec.format} ({run.name}/corpus)",
                context=context,
                rows=made.counts[part],
            )
        step.seal(run / "corpus")
        describe(data, run / "corpus", **asdict(made))
    return made.passages, made.train, made.eval, made.triples
