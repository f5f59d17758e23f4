"""The base: what it holds is recorded by version, and a base of other versions than were asked for is refused."""

from __future__ import annotations

import io
import tarfile

import pytest

from images import base
from images.api import ImageFault

STATUS = "Package: gcc\nStatus: install ok installed\nArchitecture: amd64\nVersion: 4:12.2.0-3\n"


@pytest.fixture
def mmdebstrap(monkeypatch):
    """Stands in for mmdebstrap: writes a root filesystem with one package, and keeps what it was called with."""
    calls = []

    def command(argv):
        calls.append(argv)
        with tarfile.open(argv[-1], "w") as made:
            entry = tarfile.TarInfo("./var/lib/dpkg/status")
            entry.size = len(STATUS)
            made.addfile(entry, io.BytesIO(STATUS.encode()))

    monkeypatch.setattr(base.steps, "command", command)
    return calls


def test_the_versions_of_a_base_are_recorded_and_can_be_asked_for_again(mmdebstrap, tmp_path):
    tar = base.bootstrap(tmp_path / "images" / "base.tar")
    record = base.record_of(tar)
    assert record.read_text() == "gcc=4:12.2.0-3\n"
    assert not any("hook" in argument for argument in mmdebstrap[0])
    base.bootstrap(tmp_path / "second.tar", versions=record)
    assert any(argument.startswith("--setup-hook=") and "preferences.d" in argument for argument in mmdebstrap[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "second.tar", "second.tar.packages"]


def test_a_base_of_other_versions_is_refused_by_name_and_not_kept(mmdebstrap, tmp_path):
    (tmp_path / "wanted").write_text("cc=1\ngcc=4:12.2.0-2\n")
    with pytest.raises(ImageFault, match=r"cc 1 wanted, absent found; gcc 4:12\.2\.0-2 wanted, 4:12\.2\.0-3 found"):
        base.bootstrap(tmp_path / "base.tar", versions=tmp_path / "wanted")
    assert [path.name for path in tmp_path.iterdir()] == ["wanted"]


@pytest.mark.parametrize(("text", "said"), [("", "no packages"), ("gcc\n", "line 1"), ("gcc=1\nx y=1\n", "line 2")])
def test_a_malformed_list_of_versions_is_one_line(tmp_path, text, said):
    (tmp_path / "wanted").write_text(text)
    with pytest.raises(ImageFault, match=said):
        base.bootstrap(tmp_path / "base.tar", versions=tmp_path / "wanted")


def test_what_is_no_debian_is_refused(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w"):
        pass
    with pytest.raises(ImageFault, match="no Debian root filesystem"):
        base.versions_in(tmp_path / "x.tar")
    (tmp_path / "y.tar").write_text("no tar")
    with pytest.raises(ImageFault, match=r"y\.tar: "):
        base.versions_in(tmp_path / "y.tar")
