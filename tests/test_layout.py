"""Our top-level names are ours, and stay importable under their folders' names.

`ops`, `runner` and others are also names of published distributions, and an editable install loses to them silently. So
this is an application with its own environment, never published, and these guards say so when something changes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ("eventstore", "images", "ops", "replay", "runner", "sandbox")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def strangers(provided: dict[str, list[str]]) -> dict[str, list[str]]:
    """Our names that another distribution of this environment provides too."""
    clashes = {name: sorted(set(provided.get(name, ())) - {"kernel-assay"}) for name in OURS}
    return {name: others for name, others in clashes.items() if others}


def test_no_other_distribution_provides_our_names() -> None:
    assert strangers(dict(importlib.metadata.packages_distributions())) == {}


def test_a_distribution_that_provides_one_of_our_names_is_seen() -> None:
    assert strangers({"ops": ["kernel-assay", "ops"], "yaml": ["PyYAML"]}) == {"ops": ["ops"]}


def test_the_project_cannot_be_published_by_accident() -> None:
    assert "Private :: Do Not Upload" in PROJECT["project"]["classifiers"]


def test_every_package_is_imported_from_its_own_folder() -> None:
    specs = {name: importlib.util.find_spec(name) for name in OURS}
    origins = {name: spec.origin if spec else None for name, spec in specs.items()}
    assert origins == {name: str(ROOT / name / "__init__.py") for name in OURS}


def test_the_wheel_and_the_editable_install_hold_those_packages_and_nothing_else() -> None:
    hatch = PROJECT["tool"]["hatch"]["build"]
    assert (sorted(hatch["targets"]["wheel"]["packages"]), hatch["dev-mode-dirs"]) == (sorted(OURS), ["."])


def test_no_package_marker_stands_under_tests() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_folder_of_ours_opens_with_what_it_is_for() -> None:
    silent = [
        str(marker.relative_to(ROOT))
        for name in OURS
        for marker in (ROOT / name).rglob("__init__.py")
        if not marker.read_text().startswith('"""')
    ]
    assert silent == []
