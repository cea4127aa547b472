"""install.py: the Python it accepts, and pip's settings as uv gets them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = """\
[global]
index-url = https://mirror.example/simple
extra-index-url =
    https://one.example/simple
    https://two.example/simple
find-links = /global
timeout = 50
[install]
find-links = /wheels
"""


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "install.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_of_another_version_is_refused_in_one_line(install: ModuleType) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert install.unsupported_python(pyproject, sys.version_info[:2]) is None
    for version in ((3, 10), (3, 13)):
        told = install.unsupported_python(pyproject, version)
        assert told.startswith("hopforge needs Python 3.11 to 3.12; ")
        assert f"is {version[0]}.{version[1]}. Name another one, e.g.: make demo PYTHON=python3.11" in told
        assert "\n" not in told


def test_settings_of_pip_are_passed_to_uv(install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(CONFIG)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:it's@nearer.example/simple")
    settings = install.pip_settings(sys.executable)
    options, variables = install.for_uv(settings, {"UV_HTTP_TIMEOUT": "9"})
    pairs = list(zip(options[::2], options[1::2], strict=True))
    assert ("--find-links", "/wheels") in pairs
    assert ("--find-links", "/global") not in pairs
    assert [url for option, url in pairs if option == "--extra-index-url"] == [
        "https://one.example/simple", "https://two.example/simple"
    ]  # fmt: skip
    assert variables["UV_INDEX_URL"] == "https://user:it's@nearer.example/simple", "a variable wins over a file"
    assert "UV_HTTP_TIMEOUT" not in variables, "what is set for uv itself stays"


def test_byte_code_is_written_only_where_python_may_not_write_it(install: ModuleType) -> None:
    forbidden = {install.NO_BYTE_CODE: "1", "PATH": "/bin"}
    compiling, importing = install.byte_code_commands("python", ["--editable", "."], forbidden)
    assert compiling[1:] == ["-m", "compileall", "-q", "platform_sdk"]
    assert "sentence_transformers" in importing[-1]
    compile(importing[-1], "importing", "exec")
    assert install.without(install.NO_BYTE_CODE, forbidden) == {"PATH": "/bin"}
    assert install.byte_code_commands("python", ["--editable", "."], {"PATH": "/bin"}) == []
    assert install.byte_code_commands("python", ["--editable", ".[dev]"], forbidden) == []
