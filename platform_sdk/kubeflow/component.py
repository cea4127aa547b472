"""Kubeflow components of steps, generated from the steps' inputs and outputs.

KFP reads a lightweight component's source from a file, so this module writes the source: a function that calls
``pod.run_step``. Structs are passed as JSON text, because KFP's structs turn integers into floats and lack null.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kfp.dsl.base_component import BaseComponent

from platform_sdk.config.components import Port, read_interface

LAUNCHER_IMAGE = os.environ.get("HOPFORGE_LAUNCHER_IMAGE", "hopforge/launcher:latest")
"""The image that runs the steps on a cluster: Python with hopforge installed, no GPU."""

PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "struct": "str", "list": "str"}
ARTIFACTS = {"card": "Markdown", "metrics": "Metrics", "page": "HTML"}
CARD = "card"


@dataclass(frozen=True)
class Signature:
    """A component's interface: types of its inputs and outputs by name, and its artifacts.

    Inputs have no descriptions: Argo stores a component's text eight times for each step, and the form's text comes
    from the pipeline.
    """

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)
    shown: Sequence[str] = (CARD,)


# As short as can be: Argo keeps it several times for each step.
_SOURCE = """\
from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image={image!r}, install_kfp_package=False)
def {function}({parameters}){returned}:
    from platform_sdk.kubeflow.pod import {call}

    return {call}({arguments}dict({given}), dict({shown}){names})
"""


def step_component(component: str) -> BaseComponent:
    """Return the Kubeflow component of a step, with the outputs of earlier steps as inputs."""
    interface = read_interface(component)
    inputs = {
        name: port.type
        for name, port in interface.inputs.items()
        if port.type not in ("struct", "list") and name != "run_dir"
    }
    return task_component(component, component, inputs, interface.outputs)


def task_component(task: str, component: str, inputs: Mapping[str, str], outputs: Mapping[str, Port]) -> BaseComponent:
    """Return the component of one task of a pipeline.

    Args:
        inputs: types of the inputs from earlier tasks; all other inputs are in the run directory.
    """
    shown = (CARD, *read_interface(component).shows) if component else (CARD,)
    signature = Signature(task, inputs, {name: port.type for name, port in outputs.items()}, shown)
    return made(signature, "run_step", {"run_dir": "string", "settings": "string"}, repr(task))


def made(
    signature: Signature, call: str, common: Mapping[str, str], first: str, *, status: bool = False
) -> BaseComponent:
    """Write a component's source, and let KFP read it.

    Args:
        call: the function of ``pod`` that does the work; it gets ``first``, the ``common`` inputs, the other inputs and
            the artifacts, and the names of the outputs, where there are any, in whose order it returns them.
        status: the component is an exit task, and gets the final status of the others as ``status``.
    """
    prefix = signature.name.replace("-", "_")
    function = f"{prefix}_" if keyword.iskeyword(prefix) else prefix
    inputs = {**common, **signature.inputs}
    artifacts = {f"{prefix}_{kind}": kind for kind in signature.shown}
    parameters = [f"{name}: {PYTHON_TYPES[type_]}" for name, type_ in inputs.items()]
    parameters += [f"{name}: dsl.Output[dsl.{ARTIFACTS[kind]}]" for name, kind in artifacts.items()]
    parameters += ["status: dsl.PipelineTaskFinalStatus"] if status else []
    returned = [f'("{name}", {PYTHON_TYPES[type_]})' for name, type_ in signature.outputs.items()]
    tuple_type = f'NamedTuple("Outputs", [{", ".join(returned)}])'
    arguments = [first, *common, *(["status.state"] if status else [])]
    source = _SOURCE.format(
        image=LAUNCHER_IMAGE,
        function=function,
        parameters=", ".join(parameters),
        returned=f" -> {tuple_type}" if returned else "",
        call=call,
        given=", ".join(f"{name}={name}" for name in signature.inputs),
        shown=", ".join(f"{kind}={name}" for name, kind in artifacts.items()),
        arguments="".join(f"{one}, " for one in arguments if one),
        names=f", {[*signature.outputs]}" if returned else "",
    )
    with tempfile.TemporaryDirectory(prefix="hopforge-component-") as folder:
        path = Path(folder) / f"{function}_component.py"
        path.write_text(source, encoding="utf-8")
        specification = importlib.util.spec_from_file_location(f"hopforge_{function}", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    component: BaseComponent = getattr(module, function)
    component.component_spec.name = component.name = signature.name
    return component
