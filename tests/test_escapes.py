"""The trace matrix of published escapes names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = [line for line in (ROOT / "docs" / "escapes.md").read_text().splitlines() if line.startswith("| ")]
ENTRIES = [row for row in ROWS if not row.startswith(("| published", "| ---"))]


def test_every_row_has_four_cells_and_the_matrix_is_not_empty() -> None:
    assert len(ENTRIES) >= 38
    assert [row for row in ENTRIES if row.count("|") != 5] == []


@pytest.mark.parametrize("row", ENTRIES)
def test_the_test_that_a_row_names_exists(row: str) -> None:
    name = row.split("|")[4].strip()
    path, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), name
