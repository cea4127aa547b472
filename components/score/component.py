"""Selection of the rollouts that a phase is learned from, and its figures."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def score(
    run_dir: str,
    method: str,
    step: str,
    phase: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    settings: dict,
    carry: dict,
    searched_digest: str,
    rollouts_digest: str,
    seed: int,
    selected: dsl.Output[dsl.Dataset],
    figures: dsl.Output[dsl.Metrics],
    card: dsl.Output[dsl.Markdown],
) -> NamedTuple("Outputs", [("selected_digest", str)]):
    """Check the rewards of a phase's rollouts, and select what is learned from.

    Args:
        run_dir: The run directory.
        method: Whose rewards and step: a shipped method's name, or the dotted name of a method's module.
        step: The method's step that sampled the phase.
        phase: The sampled phase.
        environment: What the agent searches in or is given.
        agent: The agent's settings.
        sampling: Engine and distribution.
        retrieval: Encoder and index.
        settings: The step's own settings.
        carry: What the phase's sampling handed on.
        searched_digest: Digest of what is searched.
        rollouts_digest: Digest of the phase's rollouts; empty where nothing was to be sampled.
        seed: The run's.
        selected: Where the selected rollouts are, and their digest.
        figures: The phase's figures.
        card: How much was selected, in a few lines.
    """
    from pathlib import Path

    from platform_sdk.evaluation.report import build_selection
    from platform_sdk.files import check_handed_on, read_object
    from platform_sdk.kubeflow.component import describe, describe_skipped, log_numbers, received
    from platform_sdk.recipes.method import load_method
    from platform_sdk.recipes.steps import select, step_of
    from platform_sdk.tracking import step_run

    if not rollouts_digest:
        describe_skipped(f"{phase}: nothing was to be sampled", Path(run_dir), selected)
        Path(card.path).write_text(f"# {phase}: beyond the run's iterations\n", encoding="utf-8")
        return ("",)
    run, loaded = Path(run_dir), load_method(method)
    own = step_of(loaded, step)
    structs = (received(struct) for struct in (agent, sampling, retrieval))
    context = loaded.context(run, environment, *structs, searched_digest, seed)
    handed_on = own.carry.model_validate(received(carry))
    with step_run(run, f"score-{phase}") as record:
        record.log_inputs(training={f"{phase}/rollouts.jsonl": rollouts_digest})
        sampled = read_object(run / phase / "sample.json")
        check_handed_on(run / phase / "sample.json", "digest of the rollouts", sampled.get("digest"), rollouts_digest)
        found = handed_on.model_dump(mode="json")
        check_handed_on(run / phase / "sample.json", "carry", sampled.get("carry"), found)
        scored = select(loaded, context, step, phase, own.settings.model_validate(received(settings)), handed_on)
        record.record_digests(rollouts=rollouts_digest, selected=scored.digest)
        record.seal(scored.path, run / phase / "figures.json")
        record.log_figures(run / phase / "figures.json")
        describe(selected, scored.path, digest=scored.digest, parents=[rollouts_digest])
        log_numbers(figures, scored.figures)
        Path(card.path).write_text(build_selection(scored.figures), encoding="utf-8")
    return (scored.digest,)
