"""Kubeflow components of steps, as parts of the pipelines' intermediate representation (IR).

A component is what KFP's SDK makes of a function with ``@dsl.component``: an interface, and a container that runs the
function's source. Here the interface is a step's inputs and outputs, and the source calls ``pod.run_step``. Structs are
passed as JSON text, because KFP's structs turn integers into floats and lack null.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from platform_sdk.config.components import Port, read_interface

if TYPE_CHECKING:
    from kfp.dsl.base_component import BaseComponent

Item = dict[str, Any]
LAUNCHER_IMAGE = os.environ.get("HOPFORGE_LAUNCHER_IMAGE", "hopforge/launcher:latest")
"""The image that runs the steps on a cluster: Python with hopforge installed, no GPU."""
SDK = "2.17.0"
"""Version of KFP's SDK in that image, which runs the source."""

IR_TYPES = {
    "string": "STRING", "integer": "NUMBER_INTEGER", "number": "NUMBER_DOUBLE", "boolean": "BOOLEAN",
    "struct": "STRING", "list": "STRING",
}  # fmt: skip
PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "struct": "str", "list": "str"}
ARTIFACTS = {"card": "Markdown", "metrics": "Metrics", "page": "HTML"}
CARD = "card"


@dataclass(frozen=True)
class Signature:
    """A component's interface: types of its inputs and outputs by name, and its artifacts.

    Inputs have no descriptions: Argo stores a component's text eight times for each step, and the form's text comes
    from the pipeline.

    Attributes:
        call: The function of ``pod`` that does the work. Its arguments are ``first``, the ``common`` inputs, the other
            inputs and the artifacts, and the names of the outputs, if any, in whose order it returns them.
        status: The component is an exit task, and gets the final status of the others as ``status``.
    """

    name: str
    call: str
    first: str
    common: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)
    shown: Sequence[str] = (CARD,)
    status: bool = False

    @property
    def function(self) -> str:
        """Name of the function in the source."""
        name = self.name.replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name

    @property
    def artifacts(self) -> dict[str, str]:
        """Kinds of the artifacts by their names, which are unique in a pipeline."""
        return {f"{self.name.replace('-', '_')}_{kind}": kind for kind in self.shown}


# As short as can be: Argo keeps it several times for each step.
_SOURCE = """\

import kfp
from kfp import dsl
from kfp.dsl import *
from typing import *

def {function}({parameters}){returned}:
    from platform_sdk.kubeflow.pod import {call}

    return {call}({arguments}dict({given}), dict({shown}){names})

"""
_COMMAND = """\
program_path=$(mktemp -d)

printf "%s" "$0" > "$program_path/ephemeral_component.py"
_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main                         --component_module_path                         "$program_path/ephemeral_component.py"                         "$@"
"""  # noqa: E501


def task_signature(task: str, component: str, inputs: Mapping[str, str], outputs: Mapping[str, Port]) -> Signature:
    """Return the interface of one task of a pipeline.

    Args:
        inputs: types of the inputs from earlier tasks; all other inputs are in the run directory.
    """
    return Signature(
        task,
        call="run_step",
        first=repr(task),
        common={"run_dir": "string", "settings": "string"},
        inputs=inputs,
        outputs={name: port.type for name, port in outputs.items()},
        shown=(CARD, *read_interface(component).shows) if component else (CARD,),
    )


def component_ir(signature: Signature) -> Item:
    """Return the interface of a component in the IR."""
    parameters: Item = {
        name: {"parameterType": IR_TYPES[type_]} for name, type_ in {**signature.common, **signature.inputs}.items()
    }
    if signature.status:
        parameters["status"] = {"parameterType": "TASK_FINAL_STATUS", "isOptional": True}
    outputs: Item = {
        "artifacts": {
            name: {"artifactType": {"schemaTitle": f"system.{ARTIFACTS[kind]}", "schemaVersion": "0.0.1"}}
            for name, kind in signature.artifacts.items()
        }
    }
    if signature.outputs:
        outputs["parameters"] = {name: {"parameterType": IR_TYPES[type_]} for name, type_ in signature.outputs.items()}
    return {
        "executorLabel": f"exec-{signature.name}",
        "inputDefinitions": {"parameters": parameters},
        "outputDefinitions": outputs,
    }


def container_ir(signature: Signature) -> Item:
    """Return the container of a component in the IR: KFP's executor, which runs the source."""
    return {
        "image": LAUNCHER_IMAGE,
        "command": ["sh", "-ec", _COMMAND, source(signature)],
        "args": ["--executor_input", "{{$}}", "--function_to_execute", signature.function],
    }


def source(signature: Signature) -> str:
    """Return the source of a component's function."""
    parameters = [f"{name}: {PYTHON_TYPES[type_]}" for name, type_ in {**signature.common, **signature.inputs}.items()]
    parameters += [f"{name}: dsl.Output[dsl.{ARTIFACTS[kind]}]" for name, kind in signature.artifacts.items()]
    parameters += ["status: dsl.PipelineTaskFinalStatus"] if signature.status else []
    returned = [f'("{name}", {PYTHON_TYPES[type_]})' for name, type_ in signature.outputs.items()]
    arguments = [signature.first, *signature.common, *(["status.state"] if signature.status else [])]
    return _SOURCE.format(
        function=signature.function,
        parameters=", ".join(parameters),
        returned=f' -> NamedTuple("Outputs", [{", ".join(returned)}])' if returned else "",
        call=signature.call,
        given=", ".join(f"{name}={name}" for name in signature.inputs),
        shown=", ".join(f"{kind}={name}" for name, kind in signature.artifacts.items()),
        arguments="".join(f"{argument}, " for argument in arguments if argument),
        names=f", {[*signature.outputs]}" if returned else "",
    )


def step_component(component: str) -> BaseComponent:
    """Return the Kubeflow component of a step, with its inputs except structs and lists.

    The component runs the step whose id in the run's pipeline is ``component``. Inputs that the pipeline takes from
    earlier steps count; the values of all others are in the run directory.
    """
    import json

    from kfp.components import load_component_from_text

    interface = read_interface(component)
    inputs = {
        name: port.type
        for name, port in interface.inputs.items()
        if port.type not in ("struct", "list") and name != "run_dir"
    }
    signature = task_signature(component, component, inputs, interface.outputs)
    ir = component_ir(signature)
    names = ir["inputDefinitions"]["parameters"]
    task = {
        "componentRef": {"name": f"comp-{component}"},
        "inputs": {"parameters": {name: {"componentInputParameter": name} for name in names}},
        "taskInfo": {"name": component},
    }
    document = {
        "components": {f"comp-{component}": ir},
        "deploymentSpec": {"executors": {f"exec-{component}": {"container": container_ir(signature)}}},
        "pipelineInfo": {"name": component},
        "root": {"dag": {"tasks": {component: task}}, "inputDefinitions": ir["inputDefinitions"]},
        "schemaVersion": "2.1.0",
        "sdkVersion": f"kfp-{SDK}",
    }
    return load_component_from_text(json.dumps(document))  # JSON is YAML
