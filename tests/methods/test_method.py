"""The one loader of methods, and what every method is checked for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from platform_sdk.errors import UserError
from platform_sdk.methods.method import Method, load_method
from platform_sdk.methods.steps import online, sample, step_of
from platform_sdk.sampling.pairs import make_pair
from tests.methods.contexts import plain


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "myg",
            r"method myg: there is no such method; did you mean mygo\? "
            r"known are arena, .*mygo.*; or name a package.module",
        ),
        ("no_such_package.method", "importing no_such_package.method failed"),
        ("platform_sdk.records", "importing platform_sdk.records failed"),
        ("tests.extensions.toy.words", "METHOD of tests.extensions.toy.words is of type SharedWords"),
    ],
)
def test_module_without_a_method_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_method(name)


def test_method_without_its_required_parts_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unfinished(Method[Any, Any, Any]):
        name = "unfinished"
        agent = rewards = measure = None  # type: ignore[assignment]

    module: Any = ModuleType("unfinished.method")
    module.METHOD = Unfinished()
    monkeypatch.setitem(sys.modules, "unfinished", ModuleType("unfinished"))
    monkeypatch.setitem(sys.modules, "unfinished.method", module)
    expected = "METHOD of unfinished.method has no agent_settings, evaluation_settings"
    with pytest.raises(UserError, match=expected):
        load_method("unfinished.method")


@pytest.mark.parametrize(("name", "folder"), [("mygo", "mygo"), ("arena", "arena")])
def test_shipped_methods_are_found_by_name(name: str, folder: str) -> None:
    method = load_method(name)
    assert (method.name, type(method).__module__) == (name, f"platform_sdk.methods.{folder}.method")


def test_an_unknown_step_is_named() -> None:
    with pytest.raises(UserError, match=r"step: mygo has no 'warm-up'; its steps: warmup, iteration"):
        step_of(load_method("mygo"), "warm-up")


def test_a_pair_of_models_is_for_agents_with_both_roles(tmp_path: Path) -> None:
    pair = str(make_pair(tmp_path / "pair", "hopforge:world-base", "hopforge:world-base"))
    toy = load_method("tests.extensions.toy.method")
    retrieval = {"method": "tests.extensions.toy.words"}
    run = toy.context(plain(tmp_path, "world-text", {}, {}, retrieval))
    own: Any = toy.steps["best"]
    with pytest.raises(UserError, match="toy's agent is one model and has no planner or worker; leave worker_model"):
        sample(toy, run, "best", "round-01", 1, pair, own.settings(), own.carry())
    with pytest.raises(UserError, match="online training trains one model"):
        online(toy, run, "online", pair, None, None)  # type: ignore[arg-type]
