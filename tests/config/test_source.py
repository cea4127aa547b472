from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.source import ConfigError, dotted, load_source, parse_value, suggestion


def written(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a: 1\nb:\n  c: [1,\n    2]\n  d:\n  - e: x\n  - f\n")
    source = load_source(path)
    assert source.data == {"a": 1, "b": {"c": [1, 2], "d": [{"e": "x"}, "f"]}}
    lines = {("a",): 1, ("b", "c"): 3, ("b", "c", 1): 4, ("b", "d", 0, "e"): 6, ("b", "d", 1): 7}
    assert {where: source.lines[where] for where in lines} == lines
    # What is not there is placed at the innermost thing around it.
    assert source.place(("b", "d", 0, "missing", "deeper")) == f"{path}:6"
    assert source.place(("z",)) == f"{path}:1"


def test_merged_keys_have_a_line(tmp_path: Path) -> None:
    source = load_source(written(tmp_path, "x: &x\n  a: 1\ny:\n  <<: *x\n  b: 2\n"))
    assert source.data["y"] == {"a": 1, "b": 2}
    assert ("y", "a") in source.lines


def test_values_are_plain(tmp_path: Path) -> None:
    data = load_source(written(tmp_path, "a: 1e-5\nb: 0x10\nc: '5'\nd: null\ne: yes\nf: 1_000\n")).data
    assert data == {"a": 1e-5, "b": 16, "c": "5", "d": None, "e": "yes", "f": 1000}
    assert [type(value) for value in data.values()] == [float, int, str, type(None), str, int]


@pytest.mark.parametrize(
    ("text", "says"),
    [("a: [1\nb: 2\n", ":2: is not valid YAML"), ("- a\n", ":1: must be a mapping"), ("a: 1\na: 2\n", "duplicate key")],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_source(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_source(tmp_path / "none.yaml")


def test_set_values_are_yaml() -> None:
    assert [parse_value(text) for text in ("1e-5", "3", "true", "[1, a]", "a b", "''", "null")] == [
        1e-5, 3, True, [1, "a"], "a b", "", None,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="quotes"):
        parse_value("[1")


def test_words() -> None:
    assert dotted(("steps", 2, "inputs", "x")) == "steps[2].inputs.x"
    assert suggestion("enviroment", ["environment", "seed"]).startswith("did you mean environment? ")
    assert suggestion("qqq", ["b", "a"]) == "known are a, b"
