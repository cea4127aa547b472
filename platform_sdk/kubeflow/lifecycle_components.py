"""The components of a run's first and last step on a cluster, which call ``lifecycle.py``.

The first one has an input for each line of the pipeline's form, so its source is made for the pipeline. KFP takes a
component's source from a file.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kfp.dsl.base_component import BaseComponent

from platform_sdk.config.form import FormField

PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}

_SOURCE = '''\
from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def begin(run_dir: str, recipe: dict{inputs}){returned}:
    """Fill in the form, make the run directory, and begin the run in MLflow.

    Args:
        run_dir: The run directory.
        recipe: The recipe as it was compiled, and what the form sets of it.
{texts}
    """
    from typing import NamedTuple

    from platform_sdk.kubeflow.lifecycle import begin_run

    parameters = begin_run(run_dir, recipe, dict({values}))
{end}

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


def lifecycle_components(form: Sequence[FormField]) -> tuple[BaseComponent, BaseComponent]:
    """The components ``begin``, with an input for each line of the ``form``, and ``end``.

    ``begin`` gives every struct that the form sets fields of, by its parameter's name.
    """
    structs = list(dict.fromkeys(field.path[0] for field in form if len(field.path) > 1))
    outputs = ", ".join(f'("{name}", dict)' for name in structs)
    result = f'NamedTuple("Outputs", [{outputs}])'
    source = _SOURCE.format(
        inputs="".join(f", {field.name}: {PYTHON_TYPES[field.type]}" for field in form),
        returned=f" -> {result}" if structs else "",
        texts="\n".join(f"        {field.name}: Of the form." for field in form),
        values=", ".join(f"{field.name}={field.name}" for field in form),
        end=f"    return {result}({', '.join(f'parameters[{name!r}]' for name in structs)})\n" if structs else "",
    )
    with tempfile.TemporaryDirectory(prefix="hopforge-lifecycle-") as folder:
        path = Path(folder) / "lifecycle_component.py"
        path.write_text(source, encoding="utf-8")
        specification = importlib.util.spec_from_file_location("hopforge_lifecycle", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    return module.begin, module.end
