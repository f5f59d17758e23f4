"""The CUDA image's definition, which this machine cannot build: that it says what docs/images.md says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images import cpu, lock

IMAGES = Path(lock.__file__).parent
FILE = IMAGES / "cuda" / "Dockerfile"


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order; continued lines are joined."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in found]


def faults(text: str) -> list[str]:
    """What a definition gets wrong of what was promised."""
    steps = instructions(text)
    froms = [rest for word, rest in steps if word == "FROM"]
    locks = [rest for word, rest in steps if word == "COPY"]
    pips = [part for word, rest in steps if word == "RUN" for part in rest.split("&&") if "pip " in part]
    installs = [part for part in pips if " install " in part]
    users = [rest for word, rest in steps if word == "USER"]
    last = steps[[word for word, _ in steps].index("USER") :] if users else []
    wrong = []
    if not froms or any(not rest.startswith("${BASE}") for rest in froms) or ("ARG", "BASE") not in steps:
        wrong.append("a base that is not given by the caller")
    if not locks or any(rest != "locks/cuda.txt /lock.txt" for rest in locks):
        wrong.append("another lock")
    if not installs or any(
        "--require-hashes" not in part or "-r /lock.txt" not in part for part in pips if "check" not in part
    ):
        wrong.append("wheels without hashes")
    if any("--no-index" not in part or "--no-deps" not in part for part in installs):
        wrong.append("an installation that can reach an index")
    if not any(word == "RUN" and "--network=none" in rest and " install " in rest for word, rest in steps):
        wrong.append("an installation with a network")
    if len(users) != 1 or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[0]) or any(word == "RUN" for word, _ in last):
        wrong.append("root")
    return wrong


def test_it_installs_the_same_lock_by_hashes_without_a_network_and_runs_as_nobody():
    assert faults(FILE.read_text()) == []
    assert lock.path("cuda") == (IMAGES / "locks/cuda.txt")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("FROM ${BASE} AS", "FROM python:3.12 AS", "a base that is not given by the caller"),
        ("COPY locks/cuda.txt", "COPY locks/cpu.txt", "another lock"),
        ("--no-deps --require-hashes -r", "--no-deps -r", "wheels without hashes"),
        ("--no-index ", "", "an installation that can reach an index"),
        ("RUN --network=none ", "RUN ", "an installation with a network"),
        ("USER 65534:65534", "USER 0:0", "root"),
        ("USER 65534:65534\n", "", "root"),
    ],
)
def test_each_promise_that_is_broken_is_seen(old, new, fault):
    text = FILE.read_text()
    assert old in text
    assert faults(text.replace(old, new)) == [fault]


def test_it_is_laid_out_like_the_built_image_and_its_python_is_the_locks():
    text = FILE.read_text()
    assert f"ENV PATH={cpu.ENV['PATH']}" in text
    assert f'CMD ["{cpu.PYTHON}", ' in text
    assert f"sys.version_info[:2] == ({lock.WANTED['cuda'].python.replace('.', ', ')})" in text
