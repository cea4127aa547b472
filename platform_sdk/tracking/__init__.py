"""MLflow runs, the audit manifest, lineage.

``start_run`` / ``step_run`` / ``finish_run`` (``runs.py``, ``step.py``) record the events of a pipeline run in the run
directory's journal (``journal.py``), without mlflow and within milliseconds. A follower process (``__main__.py``)
delivers the journal to MLflow during the run (``delivery.py``, ``inputs.py``, ``models.py``, ``traces.py``).
``manifest.py`` is the hash-chained audit trail; ``listing.py`` reads runs back; ``outcomes.py`` detects
finished steps.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from platform_sdk.tracking.runs import RunInfo, finish_run, mlflow_run_id, start_run, step_run
    from platform_sdk.tracking.step import StepRun

__all__ = ["RunInfo", "StepRun", "finish_run", "mlflow_run_id", "start_run", "step_run"]


def __getattr__(name: str) -> Any:
    """Import ``runs.py`` at the first use of a name, since reading runs does not need the modules that write them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from platform_sdk.tracking import runs

    return getattr(runs, name)
