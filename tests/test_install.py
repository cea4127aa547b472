"""install.py: the Python it accepts, and pip's settings as uv gets them."""

from __future__ import annotations

import configparser
import importlib.util
import os
import shutil
import subprocess
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


def test_ban_on_indexes_holds_for_uv_too(install: ModuleType) -> None:
    assert install.for_uv({"no-index": "1"}, {})[0] == ["--no-index"]
    assert install.for_uv({"no-index": "False"}, {})[0] == []


def test_environment_without_pip_is_created_again(tmp_path: Path) -> None:
    folder, bare = (
        tmp_path / "venv",
        {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    if shutil.which("uv", path=bare["PATH"]):
        pytest.skip("uv is in a folder of the system, and needs no pip")
    # As an interruption leaves it, or Debian without python3-venv.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    asked = [sys.executable, str(ROOT / "install.py"), str(folder), "no-such-package-of-hopforge"]
    done = subprocess.run(asked, cwd=ROOT, env=bare, capture_output=True, text=True)
    assert (folder / "bin/pip").exists(), done.stderr
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package-of-hopforge" in done.stderr


def test_image_build_gets_the_settings_of_pip(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(CONFIG + "[list]\nformat = columns\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    own |= {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_INDEX_URL": "https://user:it's@nearer.example/simple"}
    written = tmp_path / "for-the-build.conf"
    asked = [sys.executable, str(ROOT / "images/pip_here.py"), str(written)]
    flags = subprocess.run(asked, env=own, capture_output=True, text=True, check=True).stdout
    assert f"--volume {written}:/etc/pip.conf:ro" in flags
    settings = configparser.RawConfigParser()
    settings.read(written)
    assert "format" not in settings["global"]
    assert settings["global"]["extra-index-url"] == "https://one.example/simple https://two.example/simple"
    assert settings["global"]["find-links"] == "/wheels"
    assert settings["global"]["index-url"] == "https://user:it's@nearer.example/simple", "a variable wins over a file"


def test_byte_code_is_written_only_where_python_may_not_write_it(install: ModuleType) -> None:
    forbidden = {install.NO_BYTE_CODE: "1", "PATH": "/bin"}
    compiling, *importing = install.byte_code_commands("python", ["--editable", "."], forbidden)
    assert compiling[1:] == ["-m", "compileall", "-q", "platform_sdk"]
    with_torch, without_torch = (script for *_, script in importing)
    assert "sentence_transformers" in with_torch
    assert "mlflow" in without_torch
    for script in (with_torch, without_torch):
        compile(script, "importing", "exec")
    assert install.without(install.NO_BYTE_CODE, forbidden) == {"PATH": "/bin"}
    assert install.byte_code_commands("python", ["--editable", "."], {"PATH": "/bin"}) == []
    assert install.byte_code_commands("python", ["--editable", ".[dev]"], forbidden) == []


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_commands_run_at_the_same_time(install: ModuleType, tmp_path: Path) -> None:
    # Each waits for the file that the other writes, so one after the other they would not end.
    wait = "import pathlib, sys, time\nown, other = map(pathlib.Path, {!r})\nown.touch()\ndeadline = time.time() + 60\n"
    wait += "while not other.exists():\n    time.sleep(0.01) if time.time() < deadline else sys.exit('waited in vain')"
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    install.run_at_once([python(wait.format((one, other))), python(wait.format((other, one)))], dict(os.environ))


def test_failed_command_is_named_after_all_have_ended(
    install: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "written"
    slow = python(f"import pathlib, time\ntime.sleep(0.2)\npathlib.Path({str(written)!r}).touch()")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        install.run_at_once([python("import nowhere_to_be_found"), slow], dict(os.environ))
    assert caught.value.returncode == 1
    assert written.exists()
    cause, told = capfd.readouterr().err.rstrip().splitlines()[-2:]
    assert cause == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    assert told == "import nowhere_to_be_found: failed with status 1, see above; repeat the installation"
