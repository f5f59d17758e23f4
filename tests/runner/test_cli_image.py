"""`assay image`: one line and a code for each thing that is missing; what differs is printed, and is not code 0."""

from __future__ import annotations

import json
import sys

import pytest

from images import cpu, examine, lock
from images.api import Image
from runner import cli

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def assay(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["assay", "image", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("verify",), 69, "no image 'cpu' in "),
        (("verify", "x"), 64, "unknown image 'x'; there is cpu"),
        (("build", "x"), 64, "unknown image 'x'; there is cpu"),
        (("build", "--base", "/nonexistent.tar"), 64, "--base: no such file: /nonexistent.tar"),
        (("lock", "x"), 64, "unknown lock 'x'; there is cpu, cuda"),
        (("bootstrap", "--packages", "/nonexistent"), 69, "/nonexistent: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_missing_or_unknown_is_one_line(assay, arguments, code, line):
    ended, out, err = assay(*arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"assay: {line}")


def test_without_an_engine_nothing_is_built_or_verified(assay, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    cpu._pin(tmp_path, Image("cpu", DIGEST, cpu.PYTHON))
    (tmp_path / "base.tar").touch()
    for arguments in (("verify",), ("build", "--base", str(tmp_path / "base.tar"))):
        code, out, err = assay(*arguments)
        assert (code, out, err.count("\n")) == (69, "", 1)
        assert "no daemon answers" in err


def test_differences_are_printed_and_end_in_their_own_code(assay, monkeypatch):
    monkeypatch.setattr(examine, "differences", lambda home, name: [f"changed: /{n}" for n in range(60)])
    code, out, _ = assay("verify")
    assert code == 76
    assert out.splitlines()[0] == "changed: /0"
    assert out.splitlines()[-2:] == ["and 10 more", "image cpu is not what was built"]
    code, out, _ = assay("verify", "--json")
    assert (code, len(json.loads(out)["differences"])) == (76, 60)
    monkeypatch.setattr(examine, "differences", lambda home, name: [])
    assert assay("verify") == (0, "image cpu is what was built\n", "")


def test_a_lock_that_differs_is_said_and_not_written(assay, monkeypatch):
    monkeypatch.setattr(lock, "check", lambda name: ["torch: 1 in the lock, 2 found"] if name == "cpu" else [])
    assert assay("lock", "--check") == (
        76,
        "cpu: torch: 1 in the lock, 2 found\nlock cpu differs from what pip finds now\nlock cuda is what pip finds now\n",
        "",
    )
    assert assay("lock", "cuda", "--check")[0] == 0


def test_a_base_that_is_there_is_not_made_twice(assay, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "base.tar").touch()
    code, out, err = assay("bootstrap")
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert "is there already" in err


def test_the_list_says_lock_date_and_use_of_a_built_image(assay, monkeypatch):
    manifest = {"torch": "2.13.0+cpu", "lock": lock.digest("cpu"), "built": "2026-01-31T12:00:00Z"}
    image = Image("cpu", DIGEST, cpu.PYTHON, DIGEST, manifest=manifest)
    from runner import doctor

    monkeypatch.setattr(doctor, "host_image", lambda flag: None)
    monkeypatch.setattr(doctor, "built_image", lambda home: image)
    monkeypatch.setattr(cpu, "containers", lambda image: 2)
    shown = f"cpu  {DIGEST}  torch 2.13.0+cpu, lock {lock.digest('cpu')[:19]} (current)"
    assert assay("list") == (0, f"{shown}, built 2026-01-31T12:00:00Z, in use by 2 containers\n", "")
    image.manifest["lock"] = "sha256:old"
    monkeypatch.setattr(cpu, "containers", lambda image: 0)
    assert "lock sha256:old (not the lock that is here: build it again)" in assay("list")[1]
    assert json.loads(assay("list", "--json")[1])[0]["lock_is_current"] is False


def test_the_doctor_says_when_an_image_is_from_another_lock(monkeypatch, tmp_path):
    from runner import doctor

    image = Image("cpu", DIGEST, cpu.PYTHON, DIGEST, manifest={"lock": lock.digest("cpu")})
    monkeypatch.setattr(doctor, "built_image", lambda home: image)
    assert list(doctor._images(tmp_path)) == [doctor.Finding("image cpu", True, DIGEST)]
    image.manifest["lock"] = "sha256:old"
    (found,) = doctor._images(tmp_path)
    assert (found.ok, found.fix) == (True, "`assay image build`")
    assert found.detail == f"{DIGEST}, built from another lock than the one that is here"
