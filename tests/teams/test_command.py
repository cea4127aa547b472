"""``hopforge teams render`` as a platform engineer uses it: errors, teams that go, renderings that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest

from platform_sdk.teams.folder import render_into
from tests.commands import command_line, hopforge
from tests.teams.files import MANIFESTS

EXAMPLE = MANIFESTS / "teams.yaml"

WRONG = """\
pools:
  a100:
    count: 4
    per_gpu: {cpu: 8, memory: 96Gi}
    nodes: {labels: {gpu: a100}}
  h100:
    count: 8
    per_gpu: {cpu: 8, memory: 96Gi}
    nodes: {labels: {zone: east}}
teams:
  Search_Team:
    members: {admin: [ann@example.com], edit: [bob@example.com, ann@example.com]}
    gpus: {a100: {nominal: 8, borrow: 4, lend: 9}, b200: {nominal: 1}}
    job: {pool: a100, nodes: 2, gpus: 7, sampler_gpus: 1}
    priorities: {default: usual, allowed: [usual, now]}
    collections: [hotpot]
  kube-system:
    members: {edit: [dan@example.com]}
    gpus: {h100: {nominal: 8}}
    job: {pool: a100, gpus: 1}
    priorities: {default: someday}
  kube-system:
    members: {admin: [ann@example.com]}
priorities: {usual: 100, usual: 200}
auditors: [carla@example.com, carla@example.com]
"""
PROBLEMS = {
    (3, "pools.a100.count"), (9, "pools.h100.nodes.labels"), (11, "teams.Search_Team"),
    (12, "teams.Search_Team.members.edit[1]"), (13, "teams.Search_Team.gpus.b200"),
    (13, "teams.Search_Team.gpus.a100.lend"), (14, "teams.Search_Team.job"),
    (15, "teams.Search_Team.priorities.allowed[1]"), (16, "teams.Search_Team.collections[0]"),
    (17, "teams.kube-system"), (18, "teams.kube-system.members"), (20, "teams.kube-system.job.pool"),
    (21, "teams.kube-system.priorities.default"), (22, "teams.kube-system"), (24, "priorities.usual"), (25, "auditors"),
}  # fmt: skip
REMEDIES = (
    "lower the shares", "give both pools one label with different values", "use up to 63 lower-case letters",
    "name everybody once", "known are a100, h100", "a team lends only what is its own", "above nominal plus borrow",
    "known are usual", "did you mean hotpotqa?", "give the team a name of its own", "add `admin: [user@example.com]`",
    "the team has no share of a100", "keep one, or give one another name", "once is enough",
)  # fmt: skip


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_problem_is_reported_at_once_and_nothing_written(tmp_path: Path) -> None:
    file = tmp_path / "teams.yaml"
    file.write_text(WRONG)
    done = hopforge("teams", "render", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    lines = [line.removeprefix(f"{file}:").split(": ") for line in done.stderr.splitlines()[1:]]
    assert {(int(line), field) for line, field, *_ in lines} == PROBLEMS
    assert [remedy for remedy in REMEDIES if remedy not in done.stderr] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("  reading:", "  search:", "is there twice; keep one"),
        ("count: 16", "count: many", "integer"),
        ("borrow: 4, lend: 8", "borow: 4", "not known here"),
        ("ann@example.com", "'*'", "match"),
        ("storage: 500Gi", "storage: 500G", "match"),
        ("secrets: [hugging-face]", "secrets: [Hugging_Face]", "match"),
        ("  reading:", "  kueue-system:", "is a namespace of the system"),
        ("  reading:", "  cert-manager:", "is a namespace of the system"),
        ("  reading:", "  admin:", "is the name of MLflow's administrator"),
        ("  reading:", "  online:", "choose another name"),
        ("  reading:", "  search-online:", "choose another name"),
        ("edit: [bob@example.com]", "edit: [admin]", "is MLflow's administrator"),
        ("pools:", "images: {launcher: '@sha256:0'}\npools:", "match"),
    ],
)
def test_wrong_field_is_named_with_its_line(tmp_path: Path, old: str, new: str, word: str) -> None:
    file = tmp_path / "teams.yaml"
    text = EXAMPLE.read_text()
    line = text[: text.index(old)].count("\n") + 1
    file.write_text(text.replace(old, new, 1))
    done = hopforge("teams", "render", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert f"{file}:{line}: " in done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_borrowing_that_nobody_lends_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "teams.yaml"
    text = EXAMPLE.read_text()
    line = text[: text.index("borrow: 4, lend: 8")].count("\n") + 1
    file.write_text(text.replace("borrow: 4, lend: 8", "borrow: 5"))
    done = hopforge("teams", "render", file, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert done.stderr.startswith(
        f"warning: {file}:{line}: teams.search.gpus.a100.borrow: 5 is above the 4 that all other"
    )


def test_team_that_is_gone_from_the_file_stays_until_it_is_removed(tmp_path: Path) -> None:
    file, folder = tmp_path / "teams.yaml", tmp_path / "out"
    file.write_text(EXAMPLE.read_text())
    assert hopforge("teams", "render", file, "-o", folder).returncode == 0
    before = content(folder)
    refused = hopforge("teams", "render", file, "-o", folder, "--remove", "reading")
    assert refused.returncode == 2
    assert "still names this team" in refused.stderr

    head, _, rest = EXAMPLE.read_text().partition("  reading:")
    file.write_text(head + rest[rest.index("priorities: {usual: 100") :])
    kept = hopforge("teams", "render", file, "-o", folder)
    assert kept.returncode == 0
    assert content(folder) == before
    assert "Its removal would delete the namespace reading with its workspace of 500Gi" in kept.stderr

    removed = hopforge("teams", "render", file, "-o", folder, "--remove", "reading", "--json")
    assert json.loads(removed.stdout)["removed"] == {"reading": "500Gi"}
    after = content(folder)
    assert not [name for name in after if "reading" in name]
    assert not [name for name, text in after.items() if "reading" in text and not name.startswith("base/")]
    search = {name: text for name, text in before.items() if name.startswith(("teams/search", "profiles/search"))}
    assert search.items() <= after.items()
    assert hopforge("teams", "render", file, "-o", folder, "--remove", "reading").returncode == 2


def test_teams_of_mlflows_users_are_deleted_with_its_server(tmp_path: Path) -> None:
    """The file has the members' names, and JSON has no comment that marks it as rendered."""
    file, folder = tmp_path / "teams.yaml", tmp_path / "out"
    file.write_text(EXAMPLE.read_text())
    render_into(file, folder)
    file.write_text(EXAMPLE.read_text() + "mlflow: kubernetes\n")
    assert "cluster/teams.json" in render_into(file, folder).deleted
    render_into(file, tmp_path / "fresh")
    assert content(folder) == content(tmp_path / "fresh")


def test_own_files_are_kept_and_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    folder, own = tmp_path / "out", tmp_path / "out/overlays/kustomization.yaml"
    assert hopforge("teams", "render", EXAMPLE, "-o", folder).returncode == 0
    own.parent.mkdir()
    own.write_text("resources: [../cluster]\n")
    before = content(folder)
    binary = folder / ".git/index"  # of a folder that is a git repository
    binary.parent.mkdir()
    binary.write_bytes(b"DIRC\xff")
    again = hopforge("teams", "render", EXAMPLE, "-o", folder)
    assert again.returncode == 0, again.stderr
    assert binary.read_bytes() == b"DIRC\xff"
    binary.unlink()
    assert content(folder) == before

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    refused = hopforge("teams", "render", EXAMPLE, "-o", foreign)
    assert refused.returncode == 2
    assert "did not render" in refused.stderr
    assert content(foreign) == {"notes.txt": "mine"}


def test_killed_rendering_is_completed_by_the_next(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert hopforge("teams", "render", EXAMPLE, "-o", whole).returncode == 0
    process = subprocess.Popen(command_line("teams", "render", EXAMPLE, "-o", killed))
    deadline = time.monotonic() + 60
    while not (killed / "base").is_dir() and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert hopforge("teams", "render", EXAMPLE, "-o", killed).returncode == 0
    assert content(killed) == content(whole)


def test_schema_describes_the_example_and_every_field() -> None:
    from ruamel.yaml import YAML

    schema = json.loads(hopforge("schema", "teams").stdout)
    fields = [
        (title, name, field)
        for title, struct in [("teams", schema), *schema["$defs"].items()]
        for name, field in struct.get("properties", {}).items()
    ]
    assert [(title, name) for title, name, field in fields if "description" not in field] == []
    jsonschema.validate(YAML(typ="safe").load(EXAMPLE), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"teams": {}}, schema)
