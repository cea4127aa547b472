"""MLflow runs, the audit manifest, lineage.

``start_run`` / ``step_run`` / ``finish_run`` (``runs.py``, ``step.py``) write down what a pipeline run does, without
mlflow and within milliseconds, in the run directory's journal (``journal.py``). A follower process (``__main__.py``)
delivers the journal to MLflow while the run lasts (``delivery.py``, ``inputs.py``, ``models.py``, ``traces.py``).
``manifest.py`` is the hash-chained audit trail; ``listing.py`` reads runs back; ``outcomes.py`` detects
finished steps.
"""

from platform_sdk.tracking.runs import RunInfo, finish_run, mlflow_run_id, start_run, step_run
from platform_sdk.tracking.step import StepRun

__all__ = ["RunInfo", "StepRun", "finish_run", "mlflow_run_id", "start_run", "step_run"]
