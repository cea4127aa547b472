"""Study files and their cells: a base recipe with every combination of settings and every seed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import own_or_shipped
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.source import ConfigError, assignment
from platform_sdk.config.struct import Struct
from platform_sdk.tracking.outcomes import digest_of

Place = tuple[str, ...]
"""A level of each axis, in the order of the axes."""


class Level(Struct):
    """A level of an axis: its changes to the study's recipe."""

    recipe: str | None = Field(None, description="recipe of these cells instead of the study's")
    settings: dict[str, Any] = Field(default_factory=dict, description="values by dotted name, as in --set")
    model_of: dict[str, str] = Field(
        default_factory=dict,
        description="start from the trained model of another cell: the levels in which it differs from this cell",
    )
    model_parameter: str = Field("model", description="parameter that gets the model of model_of, e.g. teacher_model")

    @model_validator(mode="after")
    def _model_parameter_has_a_model(self) -> Self:
        if self.model_parameter != "model" and not self.model_of:
            raise ValueError("model_parameter: needs model_of, which names the cell with this model")
        return self


class StudyDocument(Struct):
    """A whole study file."""

    title: str
    description: str = ""
    recipe: str = Field(description="path to the base recipe, e.g. pipelines/mygo/world.yaml")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of every cell, as in --set")
    axes: dict[str, dict[str, Level]] = Field(min_length=1)
    without: tuple[dict[str, str], ...] = Field((), description="combinations of levels that are left out")
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    metrics: tuple[str, ...] = Field(("em", "f1"), min_length=1)
    baseline: dict[str, str] = Field(
        default_factory=dict, description="levels to which the other levels of their axes are compared"
    )
    average: str | None = Field(
        None, description="axis, e.g. of worlds, over which the table also averages the differences to the baseline"
    )
    published: tuple[dict[str, str | int | float], ...] = Field(
        (),
        description="a row for each cell: its levels, and the paper's values, in percent except for counts",
    )

    @model_validator(mode="after")
    def _names_what_there_is(self) -> Self:
        named = [("baseline", self.baseline), *(("without", one) for one in self.without)]
        named += [("model_of", level.model_of) for levels in self.axes.values() for level in levels.values()]
        named += [
            ("published", {name: str(value) for name, value in row.items() if name not in self.metrics})
            for row in self.published
        ]
        for field, levels in named:
            for axis, level in levels.items():
                if axis not in self.axes:
                    raise ValueError(f"{field}: {axis} is not an axis; choose {', '.join(self.axes)}")
                if level not in self.axes[axis]:
                    raise ValueError(f"{field}: {axis} has no {level}; choose {', '.join(self.axes[axis])}")
        if self.average is not None and (self.average not in self.axes or self.average in self.baseline):
            others = ", ".join(axis for axis in self.axes if axis not in self.baseline) or "there is none"
            raise ValueError(f"average: name an axis without a level in baseline ({others}), not {self.average}")
        if self.average is not None and not self.baseline:
            raise ValueError("average: is of differences, so it needs a baseline")
        if "seed" in self.axes or (empty := next((axis for axis, levels in self.axes.items() if not levels), "")):
            raise ValueError(
                "axes: set the seeds in seeds, not as an axis" if "seed" in self.axes else f"axes: {empty} has no level"
            )
        for row in self.published:
            if words := [name for name in self.metrics if isinstance(row.get(name), str)]:
                raise ValueError(f"published: {words[0]} must be a number, not {row[words[0]]!r}")
            if missing := self.axes.keys() - row.keys():
                raise ValueError(f"published: a row lacks {', '.join(sorted(missing))}")
        every = [level for levels in self.axes.values() for level in levels.values()]
        if any("seed" in settings for settings in (self.settings, *(level.settings for level in every))):
            raise ValueError("settings: set the seeds in seeds")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: contains a seed twice")
        return self


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a study.

    Attributes:
        place: its level of each axis.
        path: the recipe's file; ``overrides`` are applied to it.
        run_dir: named by the digest of the resolved recipe, so that studies share equal cells.
        needs: the cell whose trained model this run uses, or None.
        model_parameter: the parameter that gets this model.
    """

    place: Place
    seed: int
    path: Path
    overrides: tuple[str, ...]
    recipe: Recipe
    run_dir: Path
    needs: Cell | None = None
    model_parameter: str = "model"

    def __str__(self) -> str:
        return f"{' · '.join(self.place)}, seed {self.seed}"


@dataclass(frozen=True)
class Study:
    """A study with its cells; cells that need another cell's model are last."""

    name: str
    document: StudyDocument
    cells: tuple[Cell, ...]

    @property
    def places(self) -> list[Place]:
        """Return the combinations of levels, in the order of the file."""
        return list(places_of(self.document))

    def at(self, place: Place) -> list[Cell]:
        """Return the cells of a combination of levels, one for each seed."""
        return [cell for cell in self.cells if cell.place == place]

    def is_baseline(self, place: Place) -> bool:
        """Return True if other combinations are compared with this one."""
        levels = dict(zip(self.document.axes, place, strict=True))
        return bool(self.document.baseline) and self.document.baseline.items() <= levels.items()

    def baseline(self, place: Place) -> Place | None:
        """Return the baseline of a combination of levels; None if there is none, or if it is the baseline."""
        axes = list(self.document.axes)
        base = tuple(self.document.baseline.get(axis, level) for axis, level in zip(axes, place, strict=True))
        return base if base != place and base in self.places else None

    def published(self, place: Place, metric: str) -> float | None:
        """Return the published value of a metric, as printed in the paper."""
        levels = dict(zip(self.document.axes, place, strict=True))
        rows = self.document.published
        row = next((row for row in rows if all(str(row[axis]) == level for axis, level in levels.items())), {})
        value = row.get(metric)
        return None if value is None else float(value)


def load_study(
    path: Path, folder: Path, overrides: Sequence[str] = (), variables: Mapping[str, str] = os.environ
) -> Study:
    """Read a study and resolve the recipe of each of its cells.

    Args:
        path: The study's file; a relative path that does not exist here may be a shipped study's.
        folder: folder of the run directories.
        overrides: ``PATH=VALUE``, laid over every cell.
        variables: The environment of the runs, e.g. a cluster's; see ``load_recipe``.

    Raises:
        ConfigError: with every problem of the study or of its first cell that has any.
        UserError: a cell needs the model of a cell that is missing or needs one itself, or models in two parameters; or
            an override sets the seed.
    """
    if any(text.startswith("seed=") for text in overrides):
        raise UserError("--set seed: set the seeds in the study's file, in seeds")
    path = own_or_shipped(path)
    document = read_as(StudyDocument, path)
    cells: dict[tuple[Place, int], Cell] = {}
    places = list(places_of(document))
    needing = [place for place in places if _needs_a_model(document, place)]
    for place in [*(place for place in places if place not in needing), *needing]:
        for seed in document.seeds:
            cells[place, seed] = _cell(path, document, place, seed, folder, overrides, variables, cells)
    return Study(path.stem, document, tuple(cells.values()))


def places_of(document: StudyDocument) -> Iterator[Place]:
    """Yield every combination of levels that is not excluded."""
    for place in product(*document.axes.values()):
        levels = dict(zip(document.axes, place, strict=True))
        if not any(left_out.items() <= levels.items() for left_out in document.without):
            yield place


def levels_of(document: StudyDocument, place: Place) -> list[Level]:
    """Return the levels of a combination."""
    return [levels[name] for levels, name in zip(document.axes.values(), place, strict=True)]


def _needs_a_model(document: StudyDocument, place: Place) -> bool:
    return any(level.model_of for level in levels_of(document, place))


def _cell(
    path: Path,
    document: StudyDocument,
    place: Place,
    seed: int,
    folder: Path,
    overrides: Sequence[str],
    variables: Mapping[str, str],
    cells: Mapping[tuple[Place, int], Cell],
) -> Cell:
    levels = levels_of(document, place)
    recipe_path = Path(next((level.recipe for level in reversed(levels) if level.recipe), document.recipe))
    layers = [document.settings, *(level.settings for level in levels)]
    settings = [item for layer in layers for item in layer.items()]
    assignments = [assignment(name, value) for name, value in settings]
    other = {axis: level for part in levels for axis, level in part.model_of.items()}
    parameters = list(dict.fromkeys(level.model_parameter for level in levels if level.model_of)) or ["model"]
    if len(parameters) > 1:
        raise UserError(
            f"{path}: {' · '.join(place)}: its levels have different model_parameter ({', '.join(parameters)}), but a "
            "cell uses one other cell's model; exclude this combination in without"
        )
    [parameter] = parameters
    needs = None
    # If the command names the model, no other cell's model is needed.
    if other and not any(text.startswith(f"{parameter}=") for text in overrides):
        names = zip(document.axes, place, strict=True)
        source = tuple(other.get(axis, level) for axis, level in names)
        if (source, seed) not in cells or _needs_a_model(document, source):
            raise UserError(
                f"{path}: {' · '.join(place)}: model_of names {' · '.join(source)}, which is excluded or itself has a "
                "model_of; name a cell that is trained"
            )
        needs = cells[source, seed]
        assignments.append(assignment(parameter, f"run:{needs.run_dir.resolve()}"))
    assignments += [f"seed={seed}", *overrides]
    try:
        recipe = load_recipe(recipe_path, assignments, variables)
    except ConfigError as error:
        error.add_note(f"(in {path}, cell {' · '.join(place)})")
        raise
    resolved = recipe.resolved()
    # Paths of data and runs depend on the machine, so they are excluded from the cell's digest.
    resolved["parameters"] = {key: value for key, value in resolved["parameters"].items() if key != "data_dir"}
    if needs is not None:
        resolved["parameters"][parameter] = f"run:{needs.run_dir.name}"
    name = f"{recipe.name}-{digest_of(resolved)[:12]}"
    return Cell(place, seed, recipe_path, tuple(assignments), recipe, folder / name, needs, parameter)
