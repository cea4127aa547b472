"""Layers of the library: imports point downwards only, without cycles; the quick commands import nothing heavy."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "platform_sdk"
LAYERS = [  # from the top
    "cli", "teams", "log_service", "studies", "planning", "steps", "methods", "gateway", "agents", "tools", "retrieval",
    "kubeflow", "diagnosis", "execution", "training", "lineage", "evaluation", "graph", "sampling", "tracking", "data",
    "processes", "config", "sizing", "record_files", "records", "outputs", "files", "authorities", "endpoints",
    "errors", "display", "pages", "credentials", "rows", "run_dir",
]  # fmt: skip
TORCH_PACKAGES = {"processes", "sampling", "training"}
RECIPES = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


def module_name(path: Path) -> str:
    parts = path.relative_to(HOME).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


@functools.cache
def imported(path: Path) -> list[tuple[int, str]]:
    """Return every module that a file imports, at its top, inside functions or for type checking, with the line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name"
            module = node.module or ""
            # The names of a package may be modules.
            names = [f"{module}.{alias.name}" for alias in node.names]
            found += [(node.lineno, name if name in MODULES else module) for name in names]
    return list(dict.fromkeys(found))


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "platform_sdk" and len(parts) > 1 else None


def files() -> list[tuple[Path, str]]:
    return [
        (path, path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE or path.name != "__init__.py"
    ]


def test_every_package_has_a_layer() -> None:
    assert {package for _, package in files()} <= set(LAYERS)


def test_imports_point_downwards() -> None:
    wrong = [
        f"{path.relative_to(HOME)}:{line}: {package} imports {module}"
        for path, package in files()
        for line, module in imported(path)
        if (other := package_of(module)) is not None and other in LAYERS and LAYERS.index(other) < LAYERS.index(package)
    ]
    assert not wrong, "\n".join(wrong)


def import_cycle(imports: dict[str, set[str]]) -> list[str]:
    """Return an import cycle, starting and ending with the same module; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_module_imports_itself_through_others() -> None:
    imports = {
        name: {other for _, other in imported(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
    }
    found = import_cycle(imports)
    assert not found, f"import cycle: {' imports '.join(found)}; move what they share into a module below them"


def test_no_package_imports_itself_through_others() -> None:
    packages = sorted((name for name, path in MODULES.items() if path.name == "__init__.py"), key=len, reverse=True)

    def package_of(module: str) -> str:
        """Return the innermost package inside a package that holds the module, or else the module itself."""
        inner = (name for name in packages if name.count(".") > 1 and f"{module}.".startswith(f"{name}."))
        return next(inner, module)

    imports: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        known = {package_of(other) for _, other in imported(path) if other in MODULES}
        imports.setdefault(package_of(name), set()).update(known - {package_of(name)})
    found = import_cycle(imports)
    assert not found, f"packages import each other: {' imports '.join(found)}; move what they share below them"


def test_an_import_cycle_lists_its_modules_in_import_order() -> None:
    assert import_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    names = import_cycle({"top": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert names[0] == names[-1]
    assert set(pairwise(names)) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_methods_do_not_import_each_other() -> None:
    wrong = []
    for path in sorted((PACKAGE / "methods").glob("*/**/*.py")):
        own = path.relative_to(PACKAGE).parts[1]
        for line, module in imported(path):
            parts = module.split(".")
            if parts[:2] == ["platform_sdk", "methods"] and len(parts) > 3 and parts[2] != own:
                wrong.append(f"{path.relative_to(HOME)}:{line}: {own} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_only_torch_packages_import_torch() -> None:
    wrong = [
        f"{path.relative_to(HOME)}:{line}: {package} imports {module}"
        for path, package in files()
        for line, module in imported(path)
        if module.split(".")[0] == "torch" and package not in TORCH_PACKAGES
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["validate", *map(str, RECIPES)], ["schema", "mygo"], ["schema"]],
    ids=lambda arguments: arguments[0],
)
def test_quick_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom platform_sdk.cli import main\nsys.argv[1:] = " + repr(arguments) + "\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'mlflow', 'kfp', 'transformers', 'sentence_transformers', 'pymilvus'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "[]"


def loaded_by(*arguments: str) -> tuple[set[str], str]:
    """Run a command of hopforge; return the modules that it loaded, and its standard error."""
    code = (
        "import sys\nfrom platform_sdk.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()), done.stderr


def test_validate_of_a_graph_recipe_imports_no_sparse_matrices() -> None:
    loaded, _ = loaded_by("validate", "pipelines/prograph/world.yaml")
    assert "platform_sdk.retrieval.methods.prograph" in loaded
    assert "scipy" not in loaded


def test_runs_imports_nothing_that_writes_or_trains_runs(tmp_path: Path) -> None:
    (tmp_path / "first" / "tracking").mkdir(parents=True)
    (tmp_path / "first" / "tracking" / "run.jsonl").touch()  # every run directory is read, also one without events
    loaded, told = loaded_by("runs", str(tmp_path))
    assert "run first is not listed" in told
    assert "platform_sdk.tracking.listing" in loaded
    assert not loaded & {"platform_sdk.records", "platform_sdk.tracking.runs", "platform_sdk.tracking.step"}
    assert not loaded & {"mlflow", "numpy", "ruamel.yaml", "yaml"}


def test_validate_imports_no_other_command_and_nothing_that_runs() -> None:
    # The settings of a retrieval method are defined alongside code that runs.
    recipes = [str(path) for path in RECIPES if path.parent.name in ("mygo", "arena", "evipath")]
    loaded, _ = loaded_by("validate", *recipes)
    assert {name for name in loaded if name.startswith("platform_sdk.cli.")} == {
        "platform_sdk.cli.application", "platform_sdk.cli.output", "platform_sdk.cli.run",
    }  # fmt: skip
    assert not loaded & {"rich", "numpy", "msgspec", "huggingface_hub.file_download", "tqdm", "asyncio"}
    packages = {package_of(name) for name in loaded} - {None}
    assert not packages & {"data", "kubeflow", "retrieval", "sampling", "studies", "training", "tracking"}, sorted(
        packages
    )
