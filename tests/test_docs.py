"""The documents say what the program says: generated pages are fresh, and what prose names exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from eventstore.facts import Fact
from ops.decide import reasons
from scripts import generate_docs

ROOT = Path(__file__).resolve().parent.parent
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
KINDS = [model.model_fields["kind"].default for model in get_args(get_args(Fact)[0])]


@pytest.mark.parametrize("name", sorted(generate_docs.PAGES))
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / name).read_text() == generate_docs.PAGES[name](), "run `make docs`"


def test_a_stale_or_missing_page_is_seen_and_mended(tmp_path: Path) -> None:
    assert sorted(generate_docs.write(tmp_path)) == sorted(generate_docs.PAGES)
    page = tmp_path / "docs/reasons.md"
    page.write_text(page.read_text().replace("duplicate", "duplicated"))
    (tmp_path / "docs/events.md").unlink()
    assert generate_docs.stale(tmp_path) == ["docs/events.md", "docs/reasons.md"]
    generate_docs.write(tmp_path)
    assert generate_docs.stale(tmp_path) == []


def test_every_event_kind_and_each_of_its_fields_is_documented() -> None:
    page = (ROOT / "docs/events.md").read_text()
    sections = dict(re.findall(r"^### `([a-z.]+)`\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    fields = {
        model.model_fields["kind"].default: sorted(set(model.model_fields) - {"kind"})
        for model in get_args(get_args(Fact)[0])
    }
    assert {kind: sorted(re.findall(r"^\| `(\w+)` \|", text, re.M)) for kind, text in sections.items()} == fields


def test_every_reason_is_documented() -> None:
    page = (ROOT / "docs/reasons.md").read_text()
    assert [code for code in reasons.REASONS if f"| `{code}` |" not in page] == []


def test_the_changelog_names_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[(Unreleased|{re.escape(version)})\]", changelog, re.M)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_make_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:^|`|&& )make ([a-z]+)", page.read_text(), re.M))
    assert named - targets == set()


def test_the_makefile_has_at_most_ten_targets() -> None:
    assert len(re.findall(r"^[a-z]+:", (ROOT / "Makefile").read_text(), re.M)) <= 10
