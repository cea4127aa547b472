"""The documentation's site is built without a warning, and names nothing that does not exist."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from platform_sdk.cli import app
from platform_sdk.config.pipeline import load_pipeline
from platform_sdk.config.recipe import load_recipe
from platform_sdk.errors import Code

HOME = Path(__file__).parents[2]
DOCS = HOME / "docs"
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./([\w./]+\.py)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    options = ["-c", str(DOCS), "-n", "-W", "--keep-going", "-q"]
    command = [sys.executable, "-m", "sphinx", *options, str(HOME), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_generated_pages_name_every_field_and_every_command(site: Path) -> None:
    for path in HOME.glob("pipelines/*/pipeline.yaml"):
        page = (site / f"docs/reference/{path.parent.name}.html").read_text(encoding="utf-8")
        for name, parameter in load_pipeline(path).document.parameters.items():
            model = parameter.model()
            fields = [name] if model is None else [f"{name}.{field}" for field in model.model_fields]
            assert [field for field in fields if field not in page] == [], path
    commands = (site / "docs/reference/commands.html").read_text(encoding="utf-8")
    for command in ("hopforge run", "hopforge graph export", "hopforge serve retriever", "--workdir"):
        assert command in commands


def test_generated_page_names_variants_variables_and_modules(site: Path) -> None:
    page = (site / "docs/reference/mygo-grpo.html").read_text(encoding="utf-8")
    text = re.sub("<[^>]+>", "", page)
    assert "online.credit.weights (type: gdpo)" in text
    assert "string · default: environment variable HOPFORGE_DATA, else empty" in text
    assert "or the dotted name of a module with an ENVIRONMENT · required" in text


def test_front_page_leads_to_every_page(site: Path) -> None:
    sidebar = (site / "docs/index.html").read_text(encoding="utf-8")
    for page in [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]:
        link = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert page.name == "index.md" or f'href="{link}"' in sidebar, link


def test_readme_links_to_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", (HOME / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if "://" not in link and not (HOME / link).exists()] == []


def test_commands_in_the_documents_exist_with_their_options() -> None:
    top = get_command(app)
    pages = [HOME / "README.md", *DOCS.glob("*.md"), *HOME.glob("pipelines/**/README.md"), *HOME.glob("*/README.md")]
    blocks = [block for page in pages for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)]
    lines = [
        line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("hopforge ")
    ]
    assert len(lines) > 25
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        command: Any = top
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        assert {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)} <= known, line


def test_the_page_of_all_commands_names_every_command_and_no_other() -> None:
    top: Any = get_command(app)
    groups = {name: getattr(command, "commands", {}) for name, command in top.commands.items()}
    rows = re.findall(r"^\| (`hopforge .*?) \| ", (DOCS / "reference/commands.md").read_text(), re.MULTILINE)
    named = set()
    for span in re.findall("`([^`]+)`", " ".join(rows).replace("\\|", "|")):
        name, *rest = span.removeprefix("hopforge ").split()
        named |= {f"{name} {inner}" for inner in rest[0].split("|")} if groups.get(name) else {name}
    assert named == {f"{name} {inner}".strip() for name, inners in groups.items() for inner in inners or [""]}


def test_recipe_of_the_quick_start_is_valid(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "quick-start.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my-run.yaml").write_text(block)
    assert load_recipe(tmp_path / "my-run.yaml").name == "my-run"


@functools.cache
def defined(path: Path) -> set[str]:
    """Return the names of a module's functions, classes and methods, the latter behind their class."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_paper_index_names_functions_and_tests_that_exist() -> None:
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    links = CODE_LINK.findall(text)
    rows = [line for line in text.splitlines() if line.startswith("|") and "`" in line]
    assert len(links) == 2 * len(rows) > 60
    missing = [f"{path}: {name}" for name, path in links if name not in defined(HOME / path)]
    assert missing == []


def messages() -> list[str]:
    """Return the texts in the code, with … for whatever is filled in."""

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(text, node.values))
        return str(node.value) if isinstance(node, ast.Constant) else "…"

    files = [HOME / "install.py", *(HOME / "platform_sdk").rglob("*.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return [re.sub(r"%[sdg]|%\.\df", "…", text(n)) for n in nodes if isinstance(n, ast.JoinedStr | ast.Constant)]


def test_troubleshooting_quotes_messages_that_the_code_prints() -> None:
    rows = re.findall(
        r"^\| (?:`[a-z]+\.[a-z-]+` \| )?`([^|]+)` \|",
        (DOCS / "troubleshooting.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 30
    known = "\n".join(messages())
    assert [row for row in rows if row.strip("… ") not in known] == []


def test_troubleshooting_explains_every_code_and_no_other() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", page, re.MULTILINE)
    assert sorted(codes) == sorted(get_args(Code))


@pytest.mark.parametrize("code", get_args(Code))
def test_code_is_given_to_an_error(code: str) -> None:
    modules = (path for path in (HOME / "platform_sdk").rglob("*.py") if path.name != "errors.py")
    assert any(f'"{code}"' in path.read_text(encoding="utf-8") for path in modules)
