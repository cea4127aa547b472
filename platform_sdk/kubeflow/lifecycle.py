"""The first and the last step of a run on a cluster, which do there what ``runs.execute`` does on one machine.

The first step must write down what the run was really started with, in the UI perhaps with other values than the
recipe's: so it has an input for each of the pipeline's parameters, and its source is made for the pipeline. KFP takes a
component's source from a file.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from kfp.dsl.base_component import BaseComponent

from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import Parameter
from platform_sdk.kubeflow.component import received

PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "struct": "dict"}
STATES: dict[str, Literal["FINISHED", "KILLED"]] = {"SUCCEEDED": "FINISHED", "CANCELLED": "KILLED"}

_SOURCE = '''\
from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def begin(run_dir: str, pipeline: str, name: str, compile_time: dict{inputs}):
    """Make the run directory, and begin the run in MLflow.

    Args:
        run_dir: The run directory.
        pipeline: The pipeline's name.
        name: The recipe's name.
        compile_time: The parameters that were fixed when the pipeline was compiled.
{texts}
    """
    from platform_sdk.kubeflow.lifecycle import begin_run

    begin_run(run_dir, pipeline, name, compile_time, dict({values}))


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def end(run_dir: str, status: dsl.PipelineTaskFinalStatus):
    """End the run in MLflow, however it ended.

    Args:
        run_dir: The run directory.
        status: How the steps ended.
    """
    from platform_sdk.kubeflow.lifecycle import end_run

    end_run(run_dir, status.state)
'''


def lifecycle_components(parameters: Mapping[str, Parameter]) -> tuple[BaseComponent, BaseComponent]:
    """The components ``begin``, with an input for each of the ``parameters``, and ``end``."""
    typed = "".join(f", {name}: {PYTHON_TYPES[parameter.type]}" for name, parameter in parameters.items())
    texts = "\n".join(f"        {name}: Of the run." for name in parameters)
    values = ", ".join(f"{name}={name}" for name in parameters)
    with tempfile.TemporaryDirectory(prefix="hopforge-lifecycle-") as folder:
        path = Path(folder) / "lifecycle_component.py"
        path.write_text(_SOURCE.format(inputs=typed, texts=texts, values=values), encoding="utf-8")
        specification = importlib.util.spec_from_file_location("hopforge_lifecycle", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    return module.begin, module.end


def begin_run(run_dir: str, pipeline: str, name: str, compile_time: dict[str, Any], values: dict[str, Any]) -> None:
    """Claim the run directory for a recipe with these values, and begin the run.

    Raises:
        UserError: the directory holds a run of another recipe.
    """
    from platform_sdk.kubeflow.runs import claim
    from platform_sdk.tracking import start_run

    resolved = {"pipeline": pipeline, "name": name, "parameters": received({**compile_time, **values})}
    claim(Path(run_dir), resolved)
    start_run(Path(run_dir), resolved, follow=False)


def end_run(run_dir: str, state: str) -> None:
    """End the run as its steps ended (KFP's ``SUCCEEDED``, ``FAILED`` or ``CANCELLED``).

    Raises:
        UserError: it was never begun, or MLflow could not be reached.
    """
    from platform_sdk.kubeflow.runs import FILE
    from platform_sdk.tracking import finish_run

    if not (Path(run_dir) / FILE).exists():
        raise UserError(f"{run_dir}: the run was never begun; see the log of the step begin")
    finish_run(Path(run_dir), STATES.get(state, "FAILED"))
