"""Questions, passages and triples of a dataset, in the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs
from platform_sdk.run_dir import RunDir


class Inputs(StepInputs):
    """A dataset (``config.dataset.DatasetSpec``), and the base directory of its paths (may be empty)."""

    dataset: dict[str, Any]
    data_dir: str


class Outputs(StepOutputs):
    corpus_digest: str
    train_digest: str
    eval_digest: str
    triples_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Read a dataset in its official format, or generate it, and write it as records."""

    from platform_sdk.config.dataset import DatasetSpec
    from platform_sdk.data.dataset import dataset_files, prepare
    from platform_sdk.data.licences import dataset_terms
    from platform_sdk.evaluation.cards import data_card
    from platform_sdk.tracking import step_run

    run_dir = inputs.run_dir
    spec = DatasetSpec.model_validate(inputs.dataset)
    with step_run(run_dir, "corpus") as step:
        data_dir = Path(inputs.data_dir) if inputs.data_dir else None
        made = prepare(spec, data_dir, run_dir)
        for use, path in dataset_files(spec, data_dir):
            step.record_file(path, use)
        step.record_licences("dataset_licence", dataset_terms(spec, data_dir))
        for part, context in (
            ("train", "training"),
            ("eval", "evaluation"),
            ("passages", "retrieval"),
            ("triples", "retrieval"),
        ):
            step.log_dataset(
                part,
                digest=getattr(made, part),
                source=f"{spec.format} ({run_dir.name}/corpus)",
                context=context,
                rows=made.counts[part],
            )
        step.seal(RunDir(run_dir).corpus)
        outputs = Outputs(
            corpus_digest=made.passages, train_digest=made.train, eval_digest=made.eval, triples_digest=made.triples
        )
        return Finished(outputs, data_card(run_dir), made.model_dump())
