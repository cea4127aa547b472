from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.bounded_yaml import YamlError, read_yaml
from platform_sdk.config.source import ConfigError, Problem, assignment, dotted, load_source, parse_value, suggestion


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


def test_yaml_values_have_plain_types(tmp_path: Path) -> None:
    data = load_source(written(tmp_path, "a: 1e-5\nb: 0x10\nc: '5'\nd: null\ne: yes\nf: 1_000\n")).data
    assert data == {"a": 1e-5, "b": 16, "c": "5", "d": None, "e": "yes", "f": 1000}
    assert [type(value) for value in data.values()] == [float, int, str, type(None), str, int]


@pytest.mark.parametrize(
    ("text", "says"),
    [("a: [1\nb: 2\n", ":2: is not valid YAML"), ("- a\n", ":1: must be a mapping"), ("a: 1\na: 2\n", "duplicate key")],
)
def test_yaml_that_is_not_a_valid_mapping_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_source(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_missing_yaml_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_source(tmp_path / "none.yaml")


def test_set_values_are_yaml() -> None:
    assert [parse_value(text) for text in ("1e-5", "3", "true", "[1, a]", "a b", "''", "null")] == [
        1e-5, 3, True, [1, "a"], "a b", "", None,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="quotes"):
        parse_value("[1")


@pytest.mark.parametrize("value", ["ä", "r😀", "\\ud83d\\ude00", "\u2028\x85", {"😀": ["😀😀", 1e-5, None]}])
def test_value_of_an_assignment_is_read_unchanged(value: object) -> None:
    name, _, text = assignment("agent.x", value).partition("=")
    assert (name, parse_value(text)) == ("agent.x", value)


def test_field_paths_and_suggestions_are_worded() -> None:
    assert dotted(("steps", 2, "inputs", "x")) == "steps[2].inputs.x"
    assert suggestion("enviroment", ["environment", "seed"]).startswith("did you mean environment? ")
    assert suggestion("qqq", ["b", "a"]) == "known are a, b"


ALIASES = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(ALIASES, "holds more than 10000 values", id="aliases of aliases"),
        pytest.param(MERGES, "holds more than 10000 values", id="merges of merges"),
        pytest.param("a:\n" + "- 1\n" * 10_001, "holds more than 10000 values", id="many values"),
        pytest.param("a: " + "[" * 300 + "]" * 300, ":1: is nested more than 40 levels deep", id="depth 300"),
        pytest.param("a: " + "[" * 100_000, ":1: is nested more than 40 levels deep", id="depth 100,000"),
        pytest.param("b: 1\na: &a\n  b: *a\n", ":2: is nested more than 40 levels deep", id="alias in itself"),
        pytest.param("b: 1\na: &a\n  <<: *a\n", "is nested more than 40 levels deep", id="merge of itself"),
        pytest.param("b: 1\na: &a\n  <<: [*a]\n", "is nested more than 40 levels deep", id="merge of a list of itself"),
        pytest.param("b: 1\n<<: 3\n", ":2: must be a mapping or a list of mappings", id="merge of a number"),
        pytest.param("b: 1\na: " + "9" * 5000, ":2: the integer 9999", id="5,000 digits"),
        pytest.param("a: 0x" + "f" * 9000, ":1: the integer 0xffff", id="hexadecimal digits"),
        pytest.param("a: .nan", ":1: .nan is not a finite number", id="nan"),
        pytest.param("a: 1e999", ":1: 1e999 is not a finite number", id="infinite"),
        pytest.param("b: 1\na: !!int x", ":2: 'x' cannot be read as int", id="no integer"),
        pytest.param("a: !!bool x", ":1: 'x' cannot be read as bool", id="no boolean"),
        pytest.param("b: 1\na: !list [1]", ":2: has the tag !list, which is not supported", id="tagged list"),
        pytest.param("a: !!python/name:os.system x", "which is not supported", id="Python's tag"),
        pytest.param("a: !!set {b, c}", "which is not supported", id="set"),
        pytest.param("b: 1\na: x\x00y", ":2: is not valid YAML: holds the control character U+0000", id="NUL"),
        pytest.param('b: 1\na: "\\x1b[2J"', ":2: holds the control character U+001B", id="escaped control"),
        pytest.param('a: "\\ud800"', ":1: is not valid YAML: found invalid Unicode character escape", id="surrogate"),
        pytest.param("b: 1\n? [a]\n: c\n", ":2: has a list or mapping as a key", id="list as a key"),
        pytest.param("1: a\n'1': b\n", ":2: is not valid YAML: duplicate key '1'", id="keys of one name"),
        pytest.param("a: " + "x " * 40_000, ":1: is a text of 79999 characters", id="long text"),
        pytest.param("# " + "x" * 300_000, ":1: has 300002 characters", id="long file"),
        pytest.param("a: *" + "b" * 5000, "found undefined alias", id="unknown alias"),
        pytest.param("%YAML 1.9\n---\na: 1\n", "found incompatible YAML document", id="unknown version"),
        pytest.param('b: 1\na: "\\U00412345"', ":2: is not valid YAML: found invalid Unicode", id="no such character"),
        pytest.param("b: 1\na:\n\t- c\n", ":3: is not valid YAML: found the character '\\t' that cannot", id="tab"),
        pytest.param("b: 1\na: [c", ":2: is not valid YAML: did not find expected ',' or ']'", id="list without end"),
        pytest.param("a: 1\n---\nb: 2\n", ":2: is not valid YAML: expected a single document", id="two documents"),
        pytest.param("a: 1e-400", ":1: 1e-400 is so close to 0", id="underflow"),
        pytest.param("a: -0.5e-400", ":1: -0.5e-400 is so close to 0", id="negative underflow"),
        pytest.param("a: -9223372036854775809", ":1: the integer -9223372036854775809 exceeds", id="below 64 bits"),
        pytest.param("b: 1\na: !!null foo", ":2: 'foo' cannot be read as null", id="no null"),
    ],
)
def test_odd_yaml_is_one_short_error_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_source(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert says in message
    assert len(message) < 600
    assert message.isprintable()
    with pytest.raises(ValueError, match="put it in quotes") as value:
        parse_value(text)
    assert len(str(value.value)) < 600


def test_bytes_that_are_not_text_and_unreadable_paths_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="file.yaml:2: is not UTF-8 text"):
        load_source(path)
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        load_source(tmp_path / ("p" * 5000))


@pytest.mark.parametrize("character", ["\x1b", "\udc80", "\ufffe"])
def test_character_that_no_text_holds_is_named_with_its_line(character: str) -> None:
    with pytest.raises(YamlError, match=f"U\\+{ord(character):04X}; remove it") as caught:
        read_yaml(f"ä: 1\n\n# {character}\n")
    assert caught.value.line == 3


def test_anchor_may_be_defined_again() -> None:
    assert read_yaml("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")[0] == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_scalars_are_read_by_the_rules_of_yaml_1_2() -> None:
    texts = {
        "yes": "yes", "off": "off", "12:30": "12:30", "2001-12-14": "2001-12-14", "017": 17, "0o17": 15, "-0x1F": -31,
        "0b101": 5, "1e5": 1e5, "-.5": -0.5, "1.": 1.0, "TRUE": True, "~": None, "": None, "'1'": "1", "!!str 1": "1",
        "!!float 3": 3.0, "=": "=", "._": "._", "1_000": 1000, "0e-400": 0.0, "-9223372036854775808": -(2**63),
    }  # fmt: skip
    values = {text: read_yaml(f"a: {text}\n")[0]["a"] for text in texts}
    assert values == texts
    assert [type(value) for value in values.values()] == [type(value) for value in texts.values()]


def test_keys_are_texts_as_the_file_has_them() -> None:
    assert read_yaml("true: 1\nnull: 2\n~: 3\n1: 4\n0x10: 5\n'<<': 6\n")[0] == {
        "true": 1, "null": 2, "~": 3, "1": 4, "0x10": 5, "<<": 6,
    }  # fmt: skip


def test_aliases_and_merges_within_bounds_are_read(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  c: 5\nw: [*x, !!str 5, 2001-12-14, =]\n"
    assert load_source(written(tmp_path, text)).data == {
        "x": {"a": 1, "b": 2}, "y": {"b": 3, "c": 4}, "z": {"a": 1, "b": 2, "c": 5},
        "w": [{"a": 1, "b": 2}, "5", "2001-12-14", "="],
    }  # fmt: skip


def test_problems_are_counted_and_cut() -> None:
    error = ConfigError([Problem("--set " + "x" * 9000, f"f\x1b{n}", "m" * 9000) for n in range(150)])
    lines = str(error).splitlines()
    assert lines[0] == "150 problems"
    assert len(lines) == 102
    assert lines[-1] == "and 50 more"
    assert all(len(line) < 2000 and line.isprintable() for line in lines)
