"""The host image: what it shows of the host, what it is called, and what it refuses to be."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from images import host
from images.api import Bind, ImageFault
from images.host import host_image

GUEST_PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", Path(__file__).parents[2] / ".guest" / "bin" / "python"))


@pytest.fixture(scope="module")
def image():
    return host_image(GUEST_PYTHON, docker=False)


@pytest.mark.guest
def test_it_shows_system_folders_the_interpreter_and_the_environment_and_little_else(image):
    targets = [bind.target for bind in image.binds]
    prefix = str(Path(os.path.abspath(GUEST_PYTHON)).parent.parent)
    assert len(targets) == len(set(targets))
    assert {"/usr", prefix, "/etc/passwd", "/etc/group", "/etc/ld.so.cache"} <= set(targets)
    assert [target for target in targets if target.startswith("/etc")] == [
        "/etc/ld.so.cache",
        "/etc/passwd",
        "/etc/group",
    ]
    assert not set(targets) & {"/", "/root", "/home", "/etc", "/var", "/tmp", "/opt", "/proc", "/dev"}
    assert any(Path(os.path.realpath(GUEST_PYTHON)).is_relative_to(target) for target in targets)
    for bind in image.binds:
        assert bind.source.exists()


@pytest.mark.guest
def test_its_identity_is_its_manifest(image):
    assert image == host_image(GUEST_PYTHON, docker=False)
    assert image.engine_ref is None
    assert {"interpreter", "python", "python_sha256", "torch", "torch_record_sha256", "triton", "numpy"} <= set(
        image.manifest
    )
    assert image.digest.startswith("sha256:")


@pytest.mark.guest
def test_another_torch_is_another_image(image, monkeypatch):
    facts = host._probe(GUEST_PYTHON)
    facts["dists"]["torch"]["record"] = "0" * 64
    monkeypatch.setattr(host, "_probe", lambda python: facts)
    assert host_image(GUEST_PYTHON, docker=False).digest != image.digest


@pytest.mark.guest
def test_library_folders_of_the_host_are_kept_and_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:/nonexistent:relative:/usr/lib")
    monkeypatch.setenv("SECRET", "x")
    image = host_image(GUEST_PYTHON, docker=False)
    assert Bind(tmp_path, str(tmp_path)) in image.binds
    assert image.env == {
        "PATH": f"{Path(os.path.abspath(GUEST_PYTHON)).parent}:/usr/local/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": f"{tmp_path}:/usr/lib",
    }


def test_an_interpreter_without_torch_or_none_at_all_is_refused(tmp_path):
    with pytest.raises(ImageFault, match="has no torch and no triton"):
        host_image(Path(sys.executable), docker=False)
    with pytest.raises(ImageFault, match="does not run"):
        host_image(tmp_path / "python", docker=False)
    with pytest.raises(ImageFault, match="does not run"):
        host_image(Path("/bin/false"), docker=False)


def test_dockers_empty_image_holds_mount_points_and_links_only():
    binds = (Bind(Path("/usr"), "/usr"), Bind(Path("/tmp"), "/home/a/env"), Bind(Path("/etc/passwd"), "/etc/passwd"))
    content = host._skeleton(binds)
    assert content == host._skeleton(binds)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert {name for name, entry in entries.items() if entry.isdir()} == {
        *("dev", "etc", "home", "home/a", "home/a/env", "proc", "sbin", "sys", "tmp", "usr"),
    }
    assert [(name, entry.size) for name, entry in entries.items() if entry.isfile()] == [("etc/passwd", 0)]
    assert entries["sbin/ldconfig"].linkname == "/usr/sbin/ldconfig"
    assert all(entry.mode == (0o1777 if name == "tmp" else 0o755) for name, entry in entries.items() if entry.isdir())


@pytest.mark.guest
def test_without_a_daemon_docker_is_optional_unless_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert host_image(GUEST_PYTHON).engine_ref is None
    with pytest.raises(ImageFault, match="no daemon answers"):
        host_image(GUEST_PYTHON, docker=True)


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_the_empty_image_is_imported_once(engine):
    first, second = host_image(GUEST_PYTHON, docker=True), host_image(GUEST_PYTHON, docker=True)
    assert first == second
    assert first.engine_ref.startswith("sha256:")
    assert first.digest == host_image(GUEST_PYTHON, docker=False).digest
