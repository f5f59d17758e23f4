"""Locks: every wheel with its version and hash; what pip finds is what is written; what differs has a name."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from images import lock
from images.api import ImageFault
from images.lock import Pin, Wanted

HASH = "0" * 64


def wheel(folder: Path, name: str, version: str, needs: str = "", body: str = "") -> Path:
    """A tiny real wheel."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", body)
        requires = f"Requires-Dist: {needs}\n" if needs else ""
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder of wheels that is all that pip sees, and one lock that is resolved from it."""
    folder = tmp_path / "wheels"
    wheel(folder, "assay_t_top", "1.0", needs="assay-t-under")
    wheel(folder, "assay_t_under", "2.0+cpu")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(lock, "LOCKS", tmp_path)
    monkeypatch.setattr(lock, "WANTED", {"t": Wanted("3.11", ("assay-t-top==1.0",))})
    return folder


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", sorted(lock.WANTED))
def test_the_locks_that_are_here_hold_what_was_wanted_and_each_wheel_once(name):
    pins = lock.pins(name)
    assert len({pin.name for pin in pins}) == len(pins)
    held = {pin.name: pin.version.split("+")[0] for pin in pins}
    wanted = dict(text.split("==") for text in lock.WANTED[name].packages if "==" in text)
    assert {package: held.get(package) for package in wanted} == wanted
    assert "numpy" in held
    assert f"# Python {lock.WANTED[name].python}" in lock.path(name).read_text()
    assert "://" not in lock.path(name).read_text()


def test_what_pip_resolves_is_the_lock_with_what_is_needed_and_the_hash_of_each_wheel(shop):
    assert lock.write("t") is True
    assert lock.pins("t") == (
        Pin("assay-t-top", "1.0", digest(shop / "assay_t_top-1.0-py3-none-any.whl")),
        Pin("assay-t-under", "2.0+cpu", digest(shop / "assay_t_under-2.0+cpu-py3-none-any.whl")),
    )
    assert "#   py3-none-any\n" in lock.path("t").read_text()
    assert lock.digest("t") == "sha256:" + digest(lock.path("t"))
    assert lock.write("t") is False
    assert lock.check("t") == []


def test_another_wheel_under_the_same_name_and_a_newer_version_are_named(shop):
    lock.write("t")
    wheel(shop, "assay_t_top", "1.0", needs="assay-t-under", body="changed = True\n")
    wheel(shop, "assay_t_under", "3.0")
    other, newer = lock.check("t")
    assert other.startswith("assay-t-top 1.0: another wheel")
    assert newer == "assay-t-under: 2.0+cpu in the lock, 3.0 found"


def test_only_locked_wheels_are_downloaded(shop, tmp_path):
    lock.write("t")
    wheel(shop, "assay_t_top", "1.0", needs="assay-t-under", body="changed = True\n")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", str(tmp_path / "d")]
    done = subprocess.run([*pip, "-r", str(lock.path("t"))], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_what_pip_cannot_find_is_one_line(shop):
    (shop / "assay_t_under-2.0+cpu-py3-none-any.whl").unlink()
    with pytest.raises(ImageFault, match=r"^pip cannot resolve lock t: .*assay-t-under.*$"):
        lock.resolve("t")


def test_a_package_that_is_gone_or_new_is_named():
    here, now = {"a": Pin("a", "1", HASH)}, {"b": Pin("b", "1", HASH)}
    assert lock.differences(here, now) == ["a: not wanted any more", "b: not in the lock"]


@pytest.mark.parametrize("line", ["torch", "torch==1", "torch>=1 --hash=sha256:" + HASH, "torch==1 --hash=md5:00"])
def test_a_line_that_pins_nothing_is_refused_with_its_number(shop, line):
    lock.path("t").write_text(f"# head\n{line}\n")
    with pytest.raises(ImageFault, match=r"t\.txt, line 2"):
        lock.pins("t")


def test_an_absent_an_empty_and_an_unknown_lock_are_one_line_each(shop):
    with pytest.raises(ImageFault, match=r"t\.txt is missing \(assay image lock t\)"):
        lock.digest("t")
    lock.path("t").write_text("# nothing\n")
    with pytest.raises(ImageFault, match="an empty lock"):
        lock.pins("t")
    with pytest.raises(ImageFault, match="no lock 'x'; there is t"):
        lock.path("x")


def test_what_is_no_wheel_or_has_no_hash_is_never_written(shop):
    entry = {"metadata": {"name": "A", "version": "1"}, "download_info": {"url": "x/a-1.tar.gz"}}
    with pytest.raises(ImageFault, match="A 1 is no wheel with a SHA-256"):
        lock.text("t", [entry])
    entry["download_info"] = {"url": "x/a-1-py3-none-any.whl", "archive_info": {"hashes": {}}}
    with pytest.raises(ImageFault, match="A 1 is no wheel with a SHA-256"):
        lock.text("t", [entry])
