"""Bill of materials of a model: CycloneDX 1.7 with base models, datasets, packages, licences and a model card.

The content follows from the run's records, so that ``hopforge verify`` can write it again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from platform_sdk.config.struct import Struct
from platform_sdk.data.licences import GENERATED, SHIPPED, UNKNOWN
from platform_sdk.errors import UserError
from platform_sdk.lineage.extra import audit_packages
from platform_sdk.lineage.graph import Node
from platform_sdk.lineage.model_facts import Licensed, ModelFacts, TrainingRun
from platform_sdk.lineage.products import SOURCES

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component

MODEL = "model"
"""Reference of the exported model in the bill."""


class Exported(Struct):
    """An exported model: the facts of its training, and its files.

    Attributes:
        facts: origins, runs, scores and licences.
        run: the run that trained the model, or evaluated a model before training.
        head: ``number:hash`` of the last entry of the run's manifest, and the time of this entry.
        recipe: the resolved recipe.
        method: the method, e.g. ``mygo``.
        architecture: the architecture that the model's configuration names.
        files: SHA-256 by path in the directory.
        packages: versions of the installed packages at the run's start, by name.
    """

    facts: ModelFacts
    run: TrainingRun
    head: str
    time: str
    recipe: dict[str, Any]
    method: str
    architecture: str
    files: dict[str, str]
    packages: dict[str, str]

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.recipe["name"])

    @property
    def origins(self) -> list[Node]:
        """First nodes of the model's lineage: dataset files, generated data and base models."""
        return [node for node in self.facts.roots if node.digest != self.facts.model.digest]


def build_bom(model: Exported) -> str:
    """Return the bill of materials of an exported model as JSON.

    Raises:
        UserError: the extra ``audit`` is not installed, or a name in the run's records makes the bill invalid.
    """
    with audit_packages():
        from cyclonedx.output.json import JsonV1Dot7
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

    content = json.loads(JsonV1Dot7(_bom(model)).output_as_string())
    content["metadata"]["component"]["modelCard"] = _card(model)
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_7).validate_str(text):
        raise UserError(f"bom.cdx.json: does not follow CycloneDX 1.7 ({str(error.data).partition(chr(10))[0][:200]})")
    return text


def _bom(model: Exported) -> Bom:
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository

    tool = Component(name="hopforge", type=ComponentType.APPLICATION, version=model.run.origin.get("version"))
    own, parts = _model_component(model), [*_components(model)]
    bom = Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"urn:hopforge:{model.head}:{model.facts.model.digest}"),
        metadata=BomMetaData(
            component=own,
            tools=ToolRepository(components=[tool]),
            timestamp=datetime.fromisoformat(model.time),
        ),
    )
    bom.register_dependency(own, parts)
    return bom


def _model_component(model: Exported) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    files = [
        Component(name=path, type=ComponentType.FILE, bom_ref=f"file:{path}", hashes=_hashes(digest))
        for path, digest in sorted(model.files.items())
    ]
    properties = {"weights": model.facts.model.digest, "manifest_head": model.head}
    return Component(
        name=model.name, type=ComponentType.MACHINE_LEARNING_MODEL, version=model.facts.model.digest[:12],
        bom_ref=MODEL, components=files, properties=_properties(properties),
    )  # fmt: skip


def _components(model: Exported) -> Iterator[Component]:
    """Yield base models, datasets with their licences, dataset files, and installed packages."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    bases = _base_licences(model)
    for ref, licence in _references(model).items():
        if licence not in bases.values():
            kind, _, name = licence.thing.partition(" ")
            yield Component(
                name=name, type=ComponentType.MACHINE_LEARNING_MODEL if kind == "model" else ComponentType.DATA,
                version=_version(licence), bom_ref=ref, licenses=_expressions(licence),
                properties=_properties(_statement(licence)),
            )  # fmt: skip
    for node in model.origins:
        is_file, own = node.kind in SOURCES, bases.get(node.digest)
        content = {"kind": node.kind} | ({} if is_file else {"content_sha256": node.digest})
        content |= _statement(own) if own else {}
        yield Component(
            name=PurePath(node.names[0]).name if node.names else node.kind,
            type=ComponentType.MACHINE_LEARNING_MODEL if node.kind in ("model", "encoder") else ComponentType.DATA,
            version=_version(own) if own else None, bom_ref=node.digest, hashes=_hashes(node.digest) if is_file else (),
            licenses=_expressions(own) if own else (), properties=_properties(content),
        )  # fmt: skip
    for name, version in sorted(model.packages.items()):
        purl = PackageURL(type="pypi", name=name, version=version)
        yield Component(name=name, type=ComponentType.LIBRARY, version=version, bom_ref=f"{name}=={version}", purl=purl)


def _references(model: Exported) -> dict[str, Licensed]:
    """Return the licences by a unique reference: several parts of a mixture may have one format."""
    found: dict[str, Licensed] = {}
    for licence in model.facts.licences:
        number = sum(one.thing == licence.thing for one in found.values())
        found[f"{licence.thing} {number + 1}" if number else licence.thing] = licence
    return found


def _base_licences(model: Exported) -> dict[str, Licensed]:
    """Return the licences of base models by the digest of their weights.

    A licence names a model by its name in the recipe, a node by its folder; if there is one of each, they belong
    together.
    """
    licences = [one for one in model.facts.licences if one.thing.startswith("model ")]
    nodes = [node for node in model.origins if node.kind == "model"]
    found = {node.digest: one for node in nodes for one in licences if _is_of(one, node)}
    if not found and len(licences) == len(nodes) == 1:
        found = {nodes[0].digest: licences[0]}
    return found


def _is_of(licence: Licensed, node: Node) -> bool:
    name, path = licence.thing.removeprefix("model "), node.names[0] if node.names else ""
    return name in (path, f"{SHIPPED}{PurePath(path).name}")


def _version(licence: Licensed) -> str | None:
    return None if licence.revision == UNKNOWN else licence.revision


def _statement(licence: Licensed) -> dict[str, str]:
    return {"licence": licence.licence, "licence_source": licence.source}


def _hashes(digest: str) -> list[Any]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def _expressions(licence: Licensed) -> list[Any]:
    from cyclonedx.contrib.license.factories import LicenseFactory

    known = licence.licence not in (UNKNOWN, GENERATED)
    return [LicenseFactory().make_from_string(licence.licence)] if known else []


def _properties(values: Mapping[str, str]) -> list[Any]:
    from cyclonedx.model import Property

    return [Property(name=f"hopforge:{name}", value=value) for name, value in values.items()]


def _card(model: Exported) -> dict[str, Any]:
    """Return the model card of the schema, which the library has no classes for."""
    steps = [step for run in model.facts.runs for step in run.steps]
    online = any(step.startswith("online") for step in steps)
    trained = any(step.startswith(("train", "online")) for step in steps)
    data = [ref for ref, one in _references(model).items() if one.thing.startswith("dataset ")]
    data += [node.digest for node in model.origins if _is_questions(node)]
    parameters: dict[str, Any] = {
        "task": "question-answering",
        "architectureFamily": "transformer",
        "datasets": [{"ref": ref} for ref in data],
        "inputs": [{"format": "text"}],
        "outputs": [{"format": "text"}],
    }
    if trained:
        parameters["approach"] = {"type": "reinforcement-learning" if online else "supervised"}
    if model.architecture:
        parameters["modelArchitecture"] = model.architecture
    metrics = [
        {
            "type": score.metric, "value": str(score.value), "slice": f"{score.phase}, {score.questions} questions",
            **(
                {"confidenceInterval": {"lowerBound": str(score.low), "upperBound": str(score.high)}}
                if score.low is not None and score.high is not None else {}
            ),
        }
        for score in model.facts.scores
    ]  # fmt: skip
    return {
        "modelParameters": parameters,
        "quantitativeAnalysis": {"performanceMetrics": metrics},
        "considerations": {
            "useCases": [f"Question answering with retrieval by hopforge's method {model.method}."],
            "technicalLimitations": ["The model was trained and evaluated with the prompts of its method only."],
        },
    }


def _is_questions(node: Node) -> bool:
    return node.kind in SOURCES or "questions" in node.kind
