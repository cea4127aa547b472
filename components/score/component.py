"""What a phase is learned from, and its figures."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def score(
    run_dir: str,
    method: str,
    phase: str,
    rollouts_digest: str,
    threshold: float,
    selection: dict,
    warmup: dict,
    selected: dsl.Output[dsl.Dataset],
    figures: dsl.Output[dsl.Metrics],
    card: dsl.Output[dsl.Markdown],
) -> NamedTuple("Outputs", [("selected_digest", str)]):
    """Score a phase's rollouts and select those that are learned from.

    Args:
        run_dir: The run directory.
        method: Whose rewards and selection (a room of platform_sdk.recipes).
        phase: The sampled phase.
        rollouts_digest: Digest of its rollouts.
        threshold: K of the phase.
        selection: Questions, attempts and threshold of an iteration.
        warmup: Trajectories and attempts of the warm-up.
        selected: Where the selected rollouts are, and their digest.
        figures: The phase's figures.
        card: How much was selected, in a few lines.
    """
    import importlib
    from pathlib import Path
    from typing import NamedTuple

    from platform_sdk.evaluation.report import build_selection
    from platform_sdk.files import check_handed_on, read_object
    from platform_sdk.kubeflow.component import describe, log_numbers, received
    from platform_sdk.tracking import step_run

    steps = importlib.import_module(f"platform_sdk.recipes.{method}.steps")
    settings = importlib.import_module(f"platform_sdk.recipes.{method}.settings")
    run = Path(run_dir)
    chosen = settings.SelectionSpec.model_validate(received(selection))
    warming = settings.WarmupSpec.model_validate(received(warmup))
    with step_run(run, f"score-{phase}") as step:
        sampled = read_object(run / phase / "sample.json")
        check_handed_on(run / phase / "sample.json", "digest of the rollouts", sampled.get("digest"), rollouts_digest)
        check_handed_on(run / phase / "sample.json", "threshold", sampled.get("threshold"), threshold)
        scored = steps.score(run, phase, chosen, warming)
        step.record_digests(rollouts=rollouts_digest, selected=scored.digest)
        step.seal(scored.path, run / phase / "figures.json")
        step.log_figures(run / phase / "figures.json")
        describe(selected, scored.path, digest=scored.digest, threshold=threshold, parents=[rollouts_digest])
        log_numbers(figures, scored.figures)
        Path(card.path).write_text(build_selection(scored.figures), encoding="utf-8")
    return NamedTuple("Outputs", [("selected_digest", str)])(scored.digest)
