"""A step is not done twice, and not continued with other settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.files import read_object
from platform_sdk.tracking.outcomes import begin, digest_of, finished, write_json


def test_equal_inputs_have_equal_digests() -> None:
    spec = EngineSpec(live=8)
    again = digest_of({"seed": 1, "engine": EngineSpec(live=8)}, "warmup")
    assert digest_of({"engine": spec, "seed": 1}, "warmup") == again
    others = [digest_of(), digest_of(spec), digest_of(EngineSpec(live=9)), digest_of(spec, 0), digest_of(spec, "0")]
    assert len(set(others)) == len(others)


def test_phase_resumes_only_with_its_original_settings(tmp_path: Path) -> None:
    folder = tmp_path / "warmup"
    begin(folder, "a")
    begin(folder, "a")
    with pytest.raises(UserError, match="started with other settings; use another --workdir"):
        begin(folder, "b")
    assert finished(folder / "sample.json", "a") is None
    write_json(folder / "sample.json", {"inputs": "a", "digest": "d"})
    assert finished(folder / "sample.json", "a") == {"inputs": "a", "digest": "d"}
    with pytest.raises(UserError, match=r"sample\.json: was made with other settings"):
        finished(folder / "sample.json", "b")
    assert sorted(path.name for path in folder.iterdir()) == ["begun.json", "sample.json"]
    with pytest.raises(UserError, match=r"score\.json: is missing; run the step that writes it"):
        read_object(folder / "score.json")
