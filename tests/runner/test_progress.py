"""stderr holds the live log, and a bar only where somebody looks at a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from runner import progress
from runner.fake import source
from tests.runner.stories import play


def test_without_a_terminal_stderr_is_the_live_log_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.shown() as watch:
        play(tmp_path, [source(50.0)], watch=watch)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if not line.startswith("[assay] ")] == []


def test_on_a_terminal_the_same_lines_stand_above_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=200))
    with progress.shown() as watch:
        play(tmp_path, [source(50.0)], watch=watch)
    out, err = capsys.readouterr()
    assert out == ""
    assert "[assay] c001 status=promoted" in err
    assert "1/8" in err
