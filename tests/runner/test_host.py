from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner import host
from runner.exits import Unavailable


def test_a_guest_environment_behind_a_link_is_named_by_its_real_folder(tmp_path: Path) -> None:
    """The container is shown the real folder only; a program's own link is what makes it an environment's."""
    real = tmp_path / "real" / "bin"
    real.mkdir(parents=True)
    (real / "python").symlink_to(sys.executable)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert host.guest_python(tmp_path / "link" / "bin" / "python") == real / "python"


def test_a_file_that_is_no_program_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(Unavailable, match="not a program that can be run"):
        host.guest_python(tmp_path / "text")
    with pytest.raises(Unavailable, match="no such program"):
        host.guest_python(tmp_path / "nothing")
