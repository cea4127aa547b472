"""HTML pages of a run: its report and its lineage."""

from __future__ import annotations

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs
from platform_sdk.run_dir import PhaseDir, RunDir

SHOWS = ("page",)


class Inputs(StepInputs):
    """Digests of the scores before training and after it."""

    start_digest: str
    final_digest: str


class Outputs(StepOutputs):
    """No outputs."""


def run(inputs: Inputs) -> Finished[Outputs]:
    """Write the run's report, and the page of its lineage."""
    from platform_sdk.evaluation.report import build_note, build_report, build_summary
    from platform_sdk.evaluation.report.content import FINAL, START
    from platform_sdk.files import check_handed_on, sha256, write_text
    from platform_sdk.lineage.page import build_run_page
    from platform_sdk.tracking import step_run

    run_dir, start, final = inputs.run_dir, inputs.start_digest, inputs.final_digest
    with step_run(run_dir, "report") as step:
        # A pipeline without training has one evaluation, whose digest is both inputs.
        for phase, digest in ((START, start), (FINAL if final != start else START, final)):
            path = RunDir(run_dir).phase(phase).scores
            check_handed_on(path, "SHA-256", sha256(path), digest)
            step.log_inputs(evaluation={f"{phase}/{PhaseDir.scores}": digest})
        html = build_report(run_dir)
        write_text(RunDir(run_dir).report, html)
        write_text(RunDir(run_dir).lineage, build_run_page(run_dir))
        step.log_note(build_note(run_dir))
        step.record_digests(scores_start=start, scores_final=final)
        return Finished(Outputs(), build_summary(run_dir), {"parents": [start, final]}, page=html)
