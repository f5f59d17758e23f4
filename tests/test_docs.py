"""The documents say what the program says: generated pages are fresh, and what prose names exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest

from eventstore.facts import Fact
from ops.decide import reasons
from runner import bundle as bundles
from runner import customs, documents, exits, prompt
from runner.bundle import load
from runner.customs import normal_digest, parse_reply
from runner.providers import Question
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


def test_the_example_bundle_is_one() -> None:
    bundle = load(ROOT / "docs/examples/row_norm")
    assert (bundle.entry, [case.case_id for case in bundle.cases]) == ("row_norm", ["main", "odd"])


@pytest.mark.parametrize(("proposal", "same_as_the_baseline"), [(1, False), (2, True), (3, False)])
def test_the_example_proposer_answers_with_a_candidate(proposal: int, same_as_the_baseline: bool) -> None:
    kernel = (ROOT / "docs/examples/row_norm/kernel.py").read_bytes()
    question = {"prompt": "", "context": {"proposal": proposal, "kernel": kernel.decode()}}
    answer = subprocess.run(
        [sys.executable, str(ROOT / "docs/examples/proposer.py")],
        input=json.dumps(question).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    source = parse_reply(answer.stdout).source
    assert (normal_digest(source) == normal_digest(kernel)) == same_as_the_baseline


def test_the_readme_lists_exactly_the_exit_codes_that_there_are() -> None:
    paragraph = (ROOT / "README.md").read_text().partition("**Exit codes**:")[2].partition("`ambiguous`")[0]
    assert sorted(map(int, re.findall(r"\b\d+\b", paragraph))) == sorted(exits.MEANING)


def test_the_readme_shows_a_real_run() -> None:
    shown = (ROOT / "README.md").read_text().partition("    [setup]")[2].partition("\nEach candidate")[0]
    printed = [line.rstrip() for line in (ROOT / "docs/evidence/clean-root-demo.txt").read_text().splitlines()]
    lines = [line.removeprefix("    ") for line in ("    [setup]" + shown).splitlines()]
    invented = [
        line
        for line in lines
        if line != "[...]" and not any(p == line or (line.endswith("…") and p.startswith(line[:-1])) for p in printed)
    ]
    assert (len(lines) > 20, invented) == (True, [])


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    tops = "eventstore|images|ops|replay|runner|sandbox|scripts|tests|docs"
    named = re.findall(rf"`((?:{tops})/[\w./-]*[\w/])`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def columns(page: str, heading: str) -> list[str]:
    """What stands in code marks in the first column of the tables under a heading."""
    section = (ROOT / page).read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.M)
    return [name for cell in cells for name in re.findall(r"`([\w.]+)", cell)]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("# Bundles", (*bundles.REQUIRED, *bundles.OPTIONAL)),
        ("## cases.json", documents._Case.model_fields),
        ("## target.json", documents._Target.model_fields),
        ("## budget.json", documents._Budget.model_fields),
    ],
)
def test_the_page_on_bundles_has_every_file_and_every_key(heading: str, names: Iterable[str]) -> None:
    assert sorted(columns("docs/bundles.md", heading)) == sorted(names)


def test_the_page_on_bundles_has_every_name_that_the_judge_looks_for_in_a_task() -> None:
    looked_for = re.findall(r'(?:self\.module, "|self\.module\.)(\w+)', (ROOT / "ops/judge/task.py").read_text())
    assert set(columns("docs/bundles.md", "## task.py")) == {"ENTRY", *looked_for}


def test_the_examples_page_has_every_key_of_the_question_and_of_the_answer() -> None:
    page = (ROOT / "docs/examples/README.md").read_text()
    question = Question(1, load(ROOT / "docs/examples/row_norm"), b"", "baseline", (), {})
    assert columns("docs/examples/README.md", "## A proposer") == list(prompt.context(question))
    assert [key for key in ("source", *customs.STORY) if f"`{key}`" not in page] == []
