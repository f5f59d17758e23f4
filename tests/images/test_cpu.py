"""The built image: pinned by its ID, found again or refused; and once, for real, from a bootstrapped base."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from images import cpu, examine, lock, steps
from images import engine as daemon
from images.api import Image, ImageFault

IMAGE = Image(
    name="cpu",
    digest="sha256:" + "a" * 64,
    python=cpu.PYTHON,
    engine_ref="sha256:" + "a" * 64,
    env=cpu.ENV,
    manifest={"torch": "2.13.0+cpu"},
)


def test_what_was_pinned_is_loaded(tmp_path, monkeypatch):
    verified = []
    monkeypatch.setattr(cpu, "verify", verified.append)
    cpu._pin(tmp_path, IMAGE)
    assert cpu.load(tmp_path, "cpu") == IMAGE
    assert verified == [IMAGE]
    assert [path.name for path in tmp_path.iterdir()] == ["images.json"]


def test_an_image_that_was_never_built_says_how_to_build_it(tmp_path):
    with pytest.raises(ImageFault, match=r"no image 'cpu' .*: build it first"):
        cpu.load(tmp_path, "cpu")


@pytest.mark.parametrize("text", ["{", "[]", '{"cpu": {}}', '{"cpu": []}', '{"cpu": {"digest": "x"}}'])
def test_a_broken_record_is_one_line(tmp_path, text):
    (tmp_path / "images.json").write_text(text)
    with pytest.raises(ImageFault) as fault:
        cpu.load(tmp_path, "cpu")
    assert "images.json" in str(fault.value)
    assert "\n" not in str(fault.value)


def test_only_an_image_id_is_pinned(tmp_path):
    with pytest.raises(ImageFault, match="no image ID"):
        cpu._pin(tmp_path, Image("cpu", "python:3.11", "/x"))
    assert list(tmp_path.iterdir()) == []


def test_a_failing_step_is_one_line_of_its_own_words():
    with pytest.raises(ImageFault, match=r"^sh failed \(3\): last words$"):
        steps.command(["sh", "-c", "echo first >&2; echo last words >&2; exit 3"])
    with pytest.raises(ImageFault, match="no-such-tool is not installed"):
        steps.command(["no-such-tool"])


def test_where_pip_finds_other_wheels_the_way_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ImageFault, match=r"^python.* failed \(1\): .*`assay image lock cpu` writes a lock") as fault:
        cpu._download(tmp_path / "wheels")
    assert "\n" not in str(fault.value)
    assert not (tmp_path / "wheels" / cpu.LOCK_FILE).exists()


def test_a_base_of_another_python_than_the_locks_is_refused(tmp_path):
    cpu._same_python("3.11.2", tmp_path / "base.tar")
    with pytest.raises(ImageFault, match=r"^base\.tar has Python 3\.13\.5; lock cpu is for Python 3\.11$"):
        cpu._same_python("3.13.5", tmp_path / "base.tar")


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_an_image_that_docker_no_longer_has_is_refused(engine):
    with pytest.raises(ImageFault, match="image cpu"):
        cpu.verify(IMAGE)


@pytest.mark.sandbox
@pytest.mark.conformance
@pytest.mark.parametrize("engine", ["docker"])
def test_an_image_is_bootstrapped_built_pinned_and_runs_a_hardened_job(engine, tmp_path):
    base = os.environ.get("ASSAY_BASE_TAR")
    if not base and not shutil.which("mmdebstrap"):
        pytest.skip("neither mmdebstrap nor ASSAY_BASE_TAR: nothing to build from")
    from sandbox.api import Job
    from sandbox.find import find

    built = cpu.build_cpu_image(tmp_path, base=Path(base) if base else None)
    try:
        assert cpu.load(tmp_path, "cpu") == built
        assert json.loads((tmp_path / "images.json").read_text())["cpu"]["digest"] == built.digest
        assert (built.manifest["torch"].split("+")[0], built.manifest["triton"]) == ("2.13.0", "3.7.1")
        code = "import os, torch, triton; print(os.getuid(), int(torch.ones(3).sum()), os.listdir('/wheels'))"
        ended = find("docker").run(Job("assay-t-cpu-image", "guest", ("-I", "-c", code), built))
        assert (ended.status, ended.exit_code, ended.stdout.head) == ("exited", 0, b"65534 3 []\n"), ended.stderr.text()
        assert {key: built.manifest[f"wheel {key}"] for key in ("torch", "triton")} == {
            pin.name: pin.sha256 for pin in lock.pins("cpu") if pin.name in ("torch", "triton")
        }
        assert examine.differences(tmp_path, "cpu") == []
    finally:
        remove(built.digest)


def remove(image: str) -> None:
    with closing(daemon.connect(600)) as client:
        client.remove_image(image, force=True)
