"""A run as one page."""

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def report(
    run_dir: str,
    start_digest: str,
    final_digest: str,
    page: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
):
    """Write the run's report.

    Args:
        run_dir: The run directory.
        start_digest: Digest of the scores before training.
        final_digest: Digest of the scores after it.
        page: The report, one self-contained page.
        summary: The scores in a few lines.
    """
    from pathlib import Path

    from platform_sdk.evaluation.report import build_note, build_report, build_summary
    from platform_sdk.evaluation.report.content import FINAL, START
    from platform_sdk.files import check_handed_on, sha256, write_text
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    with step_run(run, "report") as step:
        # A pipeline that trains nothing has one evaluation, and hands its digest on as both.
        for phase, digest in ((START, start_digest), (FINAL if final_digest != start_digest else START, final_digest)):
            path = run / phase / "scores.json"
            check_handed_on(path, "SHA-256", sha256(path), digest)
            step.log_inputs(evaluation={f"{phase}/scores.json": digest})
        html = build_report(run)
        write_text(run / "report.html", html)
        step.log_note(build_note(run))
        step.record_digests(scores_start=start_digest, scores_final=final_digest)
        Path(page.path).write_text(html, encoding="utf-8")
        Path(summary.path).write_text(build_summary(run), encoding="utf-8")
