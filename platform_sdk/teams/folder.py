"""Render teams into a folder, where a team that the file no longer names stays until it is removed by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.document import read_as, validated
from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import home
from platform_sdk.config.source import load_source, suggestion
from platform_sdk.config.struct import Struct
from platform_sdk.config.teams import Team, TeamsSpec
from platform_sdk.files import make_folder, read_regular, read_text, write_text
from platform_sdk.teams.checks import check
from platform_sdk.teams.manifest import MARK
from platform_sdk.teams.render import RECORD, TITLE, USERS, collections_of, rendered

WHOLE = ("base", "images")
"""Folders that are copies of hopforge's own: other files in them are deleted."""


class Rendering(Struct):
    """Teams and files of a folder after a rendering."""

    teams: tuple[str, ...]
    kept: dict[str, str]
    """Teams that the file does not name, with the size of their volume."""
    removed: dict[str, str]
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    warnings: tuple[str, ...]


def read_teams(path: Path) -> TeamsSpec:
    """Read a teams file.

    Raises:
        ConfigError: all problems.
    """
    source = load_source(path, with_repeated=True)
    spec = validated(TeamsSpec, source)
    check(spec, source, collections_of(spec, home() / "manifests"))
    return spec


def render_into(path: Path, folder: Path, remove: Sequence[str] = ()) -> Rendering:
    """Render a teams file into a folder; nothing is written if anything is wrong.

    Args:
        path: The teams file.
        folder: A folder that does not exist, is empty, or was rendered before.
        remove: Teams to drop, which the file must not name.

    Raises:
        ConfigError: the file is wrong.
        UserError: the folder has other files, or ``remove`` names a team that is unknown or still in the file.
    """
    _check_ours(folder)
    source = load_source(path, with_repeated=True)
    spec = validated(TeamsSpec, source)
    before = {file.parent.name: read_as(Team, file) for file in sorted(folder.glob(f"teams/*/{RECORD}"))}
    for name in remove:
        if name in spec.teams:
            raise UserError(f"{name}: {path} still names this team; take it out of the file, then remove it")
        if name not in before:
            raise UserError(f"{name}: {folder} has no such team; {suggestion(name, before)}")
    left = {name: team for name, team in before.items() if name not in spec.teams}
    kept = {name: team for name, team in left.items() if name not in remove}
    whole = spec.model_copy(update={"teams": dict(spec.teams) | kept})
    manifests = home() / "manifests"
    warnings = check(whole, source, collections_of(whole, manifests))
    files = rendered(whole, manifests, load_source(home() / "pipelines/cluster.yaml").data)
    written, deleted = _replace(folder, files)
    return Rendering(
        teams=tuple(sorted(whole.teams)),
        kept={name: team.storage for name, team in kept.items()},
        removed={name: team.storage for name, team in left.items() if name in remove},
        written=written,
        deleted=deleted,
        warnings=tuple(map(str, warnings)),
    )


def _check_ours(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; name one for the manifests with -o")
    readme = folder / "README.md"
    if not (readme.is_file() and read_text(readme).startswith(TITLE)):
        raise UserError(f"{folder}: has files that hopforge did not render; name another folder with -o")


def _replace(folder: Path, files: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write changed files, then delete files that are no longer rendered; a killed rendering is repeated completely."""
    # README.md first, since the next rendering recognises the folder by it. A team's record is deleted last, so that an
    # interrupted removal can continue.
    written = []
    for name in sorted(files, key=lambda name: (name != "README.md", name)):
        target = folder / name
        if not (target.is_file() and read_regular(target) == files[name].encode()):
            make_folder(target.parent)
            write_text(target, files[name])
            written.append(name)
    stale = [
        name
        for found in sorted(folder.rglob("*"))
        if found.is_file() and (name := str(found.relative_to(folder))) not in files and _rendered(found, name)
    ]
    for name in sorted(stale, key=lambda name: (name.endswith(RECORD), name)):
        (folder / name).unlink()
        parent = (folder / name).parent
        while parent != folder and not any(parent.iterdir()):
            os.rmdir(parent)
            parent = parent.parent
    return tuple(written), tuple(stale)


def _rendered(path: Path, name: str) -> bool:
    return name.split("/")[0] in WHOLE or name == USERS or read_regular(path).startswith(MARK.encode())
