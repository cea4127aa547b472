"""Bill of materials and provenance of any record: valid, with the licences of base models and datasets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import Parse
from in_toto_attestation.v1 import statement_pb2

from platform_sdk.lineage.attestation import build_provenance
from platform_sdk.lineage.bom import Exported, build_bom
from platform_sdk.lineage.graph import Node
from platform_sdk.lineage.model_facts import Licensed, ModelFacts, Score, TrainingRun

WEIGHTS, BASE, TRAIN = "a" * 64, "b" * 64, "c" * 64
HUB = "/cache/models--meta-llama--Llama-3.1-8B/snapshots/0123"


def licensed(thing: str, licence: str) -> Licensed:
    return Licensed(thing=thing, licence=licence, source="a card", revision="r1")


def exported(*licences: Licensed, base: str = HUB, name: str = "recipe", **changed: Any) -> Exported:
    run = TrainingRun(
        run="run", recipe=name, pipeline="mygo", origin={"version": "1.0", "commit": "d" * 40}, seconds=1.0,
        started="2026-01-01T00:00:00.000+00:00", ended="2026-01-02T00:00:00.000+00:00", gpu_hours=0.0,
        steps=("corpus", "online"),
    )  # fmt: skip
    roots = (
        Node(digest=BASE, kind="model", names=(base,), runs=("run",)),
        Node(digest=TRAIN, kind="training file", names=("/data/train.json",), runs=("run",)),
    )
    scores = (
        Score(phase="run/eval", questions=2, metric="em", value=0.5, low=0.25, high=0.75),
        Score(phase="run/eval", questions=2, metric="turns", value=2.0, low=None, high=None),
    )
    facts = ModelFacts(
        model=Node(digest=WEIGHTS, kind="model", names=("run/model",), runs=("run",)), roots=roots, runs=(run,),
        scores=scores, licences=licences, unread=(),
    )  # fmt: skip
    fields = {
        "facts": facts, "run": run, "head": f"3:{WEIGHTS}", "time": run.ended, "recipe": {"name": name},
        "method": "mygo", "architecture": "LlamaForCausalLM", "files": {"model.safetensors": TRAIN},
        "packages": {"torch": "2.13.0", "ruamel.yaml": "0.19", "torchvision": "0.28.0+cpu"},
    }  # fmt: skip
    return Exported.model_validate(fields | changed)


def components(model: Exported) -> dict[str, dict[str, Any]]:
    """Return the components of a valid bill by their references, which are unique."""
    text = build_bom(model)
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str(text) is None
    found = json.loads(text)["components"]
    references = [one["bom-ref"] for one in found]
    assert len(set(references)) == len(references)
    return dict(zip(references, found, strict=True))


def test_licences_belong_to_the_base_model_and_the_datasets() -> None:
    found = components(exported(licensed("model meta-llama/Llama-3.1-8B", "llama3.1"), licensed("dataset nq", "MIT")))
    assert found[BASE]["licenses"] == [{"license": {"name": "llama3.1"}}]
    assert (found[BASE]["type"], found[BASE]["version"]) == ("machine-learning-model", "r1")
    assert found["dataset nq"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert found[TRAIN]["hashes"] == [{"alg": "SHA-256", "content": TRAIN}]
    assert found["torch==2.13.0"]["purl"] == "pkg:pypi/torch@2.13.0"


def test_unknown_licence_is_a_property_and_no_licence() -> None:
    found = components(exported(licensed("dataset jsonl", "unknown")))["dataset jsonl"]
    assert "licenses" not in found
    assert {"name": "hopforge:licence", "value": "unknown"} in found["properties"]


def test_several_base_models_and_parts_of_one_format_keep_their_licences() -> None:
    two = [licensed("model one", "MIT"), licensed("model two", "gemma")]
    found = components(exported(*two, licensed("dataset jsonl", "MIT"), licensed("dataset jsonl", "ODbL-1.0")))
    assert {"model one", "model two", "dataset jsonl", "dataset jsonl 2"} <= found.keys()
    assert found["dataset jsonl 2"]["licenses"] == [{"license": {"id": "ODbL-1.0"}}]


def test_model_card_has_approach_architecture_data_and_intervals() -> None:
    content = json.loads(build_bom(exported(licensed("dataset nq", "MIT"))))
    card = content["metadata"]["component"]["modelCard"]
    parameters = card["modelParameters"]
    assert parameters["approach"] == {"type": "reinforcement-learning"}
    assert parameters["modelArchitecture"] == "LlamaForCausalLM"
    assert parameters["datasets"] == [{"ref": "dataset nq"}, {"ref": TRAIN}]
    em, turns = card["quantitativeAnalysis"]["performanceMetrics"]
    assert em["confidenceInterval"] == {"lowerBound": "0.25", "upperBound": "0.75"}
    assert "confidenceInterval" not in turns


@pytest.mark.parametrize("text", ['a"b<c>&', "ä (b", "x" * 2000, "MIT OR", "a\tb", "🙂", "../..", " "])
def test_odd_names_give_a_valid_bill_and_statement(text: str) -> None:
    odd = exported(
        licensed(f"dataset {text}", text), licensed(f"model {text}", "MIT"), base=f"/{text}", name=text,
        files={text: TRAIN}, architecture=text,
    )  # fmt: skip
    components(odd)
    statement = Parse(build_provenance(odd, TRAIN), statement_pb2.Statement())
    assert [one.name for one in statement.subject] == [text]


def test_bill_and_statement_are_equal_when_they_are_built_again() -> None:
    model = exported(licensed("dataset nq", "MIT"))
    assert build_bom(model) == build_bom(model)
    assert build_provenance(model, TRAIN) == build_provenance(model, TRAIN)


def test_provenance_names_files_by_sha256_and_weights_by_their_own_digest() -> None:
    content = json.loads(build_provenance(exported(), TRAIN))["predicate"]["buildDefinition"]
    digests = {one["name"]: one.get("digest") for one in content["resolvedDependencies"]}
    assert digests["/data/train.json"] == {"sha256": TRAIN}
    assert digests[HUB] == {"hopforgeContent": BASE}
    assert digests["hopforge"] == {"gitCommit": "d" * 40}
    packages = {one.get("uri") for one in content["resolvedDependencies"]}
    assert {"pkg:pypi/ruamel.yaml@0.19", "pkg:pypi/torchvision@0.28.0%2Bcpu"} <= packages
