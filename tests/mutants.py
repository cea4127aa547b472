"""Change a line of the library, and see whether its tests notice: a measure of tests, run by hand.

Each of twelve modules is changed in seven places spread evenly over it: a comparison, an operator, a condition or a
number is replaced by its neighbour. A mutant that all tests of its module pass has *survived*: the tests miss it, or
the change has no effect (which a reader must decide). The changes are made in a copy; the checkout stays as it is.

    python -m tests.mutants [MODULE ...] [-o FILE]      # 84 mutants: some twenty minutes on two cores
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
EACH = 7
TIMEOUT_S = 300.0
# Module -> the tests that are meant to hold it.
MODULES = {
    "agents/sections": "tests/methods/arena tests/methods/mygo/test_grammar.py",
    "config/bounded_yaml": "tests/config/test_source.py",
    "evaluation/intervals": "tests/evaluation/test_intervals.py tests/evaluation/test_compare_seeds.py",
    "evaluation/metrics/parts": "tests/evaluation/metrics",
    "graph/merge": "tests/graph",
    "methods/arena/rewards": "tests/methods/arena/test_rewards.py tests/methods/arena/test_measures.py",
    "methods/selection": "tests/methods/mygo/test_selection.py",
    "record_files": "tests/test_records.py tests/test_files.py",
    "sampling/dialogue": "tests/sampling/test_dialogue.py tests/sampling/test_dialogue_ends.py",
    "tools/calculator": "tests/tools",
    "training/credit": "tests/training/test_credit.py tests/training/test_credit_properties.py",
    "training/objectives": "tests/training/test_objectives.py tests/training/test_group_relative.py",
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


def sites(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that a mutant may change, in the order of the source."""
    typed = {id(part) for note in annotations(tree) for part in ast.walk(note)}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
                yield node
            case ast.BinOp(op=operator) if type(operator) in OPERATORS and id(node) not in typed:
                yield node
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                yield node
            case ast.Constant(value=int() | float()) if id(node) not in typed:
                yield node


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the annotations of a module, whose operators no program evaluates."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(note := getattr(node, name, None), ast.expr):
                yield note


def mutate(source: str, number: int, of: int) -> tuple[str, str]:
    """Return the source with the ``number``-th of ``of`` evenly spread changes, and the changed line."""
    tree = ast.parse(source)
    found = sorted(sites(tree), key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]
    node = found[number * len(found) // of]
    line: int = node.lineno  # type: ignore[attr-defined]
    before = ast.unparse(node)
    match node:
        case ast.Compare():
            node.ops = [COMPARISONS[type(node.ops[0])]()]
        case ast.BinOp():
            node.op = OPERATORS[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value += 1
    return ast.unparse(ast.fix_missing_locations(tree)), f"{line}: {before}  ->  {ast.unparse(node)}"


def survives(copy: Path, tests: str) -> bool:
    """Run tests in the copy; a test that never ends has noticed, too."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests.split()]
    quiet = {"cwd": copy, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, **quiet, env=environment, timeout=TIMEOUT_S).returncode == 0  # type: ignore[call-overload,no-any-return]
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", choices=[*MODULES, []], help="module, such as training/credit")
    parser.add_argument("-o", dest="output", type=Path, help="also write the outcome to this file")
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HOME / name, copy / name)
        for module in options.modules or MODULES:
            path = copy / "platform_sdk" / f"{module}.py"
            source = path.read_text()
            if not survives(copy, MODULES[module]):
                sys.exit(f"the tests of {module} fail without a mutant: {MODULES[module]}")
            for number in range(EACH):
                changed, line = mutate(source, number, EACH)
                path.write_text(changed)
                outcome = "SURVIVED" if survives(copy, MODULES[module]) else "found"
                lines.append(f"{outcome:9}{module}.py:{line}")
                print(lines[-1], flush=True)
            path.write_text(source)
    lines.append(f"{sum(line.startswith('found') for line in lines)} of {len(lines)} mutants found")
    print(lines[-1])
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
