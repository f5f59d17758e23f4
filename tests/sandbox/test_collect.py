"""What a guest left in a folder is collected as plain bytes or refused by name: with openat2, and without it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox import collect as collecting
from sandbox.collect import Caps, CollectError, collect

SECRET = b"the host's own words"
SMALL = Caps(file_bytes=10, total_bytes=25, entries=4, depth=2, name_bytes=20)


@pytest.fixture(params=["openat2", "component-wise"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "component-wise":
        monkeypatch.setattr(collecting, "has_openat2", lambda: False)
    elif not collecting.has_openat2():
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def test_plain_files_come_back_by_their_relative_paths(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "b.txt").write_bytes(b"two")
    (folder / "grün.txt").write_bytes(b"")
    (folder / "a").write_bytes(bytes(range(10)))
    assert collect(folder, SMALL) == {"a": bytes(range(10)), "grün.txt": b"", "sub/b.txt": b"two"}


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


MADE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a link to a file": (lambda f, s: (f / "x").symlink_to(s), "x: a symbolic link"),
    "a link to a folder": (lambda f, s: (f / "x").symlink_to(s.parent), "x: a symbolic link"),
    "a link inside": (lambda f, s: ((f / "a").touch(), (f / "x").symlink_to("a")), "x: a symbolic link"),
    "a dangling link": (lambda f, s: (f / "x").symlink_to("none"), "x: a symbolic link"),
    "a magic link": (lambda f, s: (f / "x").symlink_to("/proc/self/root"), "x: a symbolic link"),
    "a hard link": (lambda f, s: os.link(s, f / "x"), "x: 2 names for one file (a hard link)"),
    "a pipe": (lambda f, s: os.mkfifo(f / "x"), "x: a named pipe"),
    "a socket": (lambda f, s: bind(f / "x"), "x: a socket"),
    "a large file": (lambda f, s: (f / "x").write_bytes(b"x" * 11), "x: more than 10 bytes"),
    "a sparse file": (lambda f, s: sparse(f / "x"), "x: more than 10 bytes"),
    "too many": (lambda f, s: [(f / f"x{i}").touch() for i in range(5)], ".: more than 4 entries"),
    "too much": (lambda f, s: [(f / f"x{i}").write_bytes(b"x" * 9) for i in range(3)], "x2: more than 7 bytes"),
    "too deep": (lambda f, s: (f / "a" / "b").mkdir(parents=True), "a/b: a folder, deeper than 2 levels"),
    "a long name": (lambda f, s: (f / ("x" * 21)).touch(), f"{'x' * 21}: a name longer than 20 bytes"),
    "no UTF-8": (lambda f, s: (f / "x\udcff").touch(), "x\\udcff: a name that is no printable text"),
    "a name for a terminal": (lambda f, s: (f / "\x1b[2J\n").touch(), "\\x1b[2J\\n: a name that is no printable text"),
}


@pytest.mark.parametrize(("make", "why"), MADE.values(), ids=MADE)
def test_anything_else_is_refused_by_name(
    folder: Path, secret: Path, make: Callable[[Path, Path], object], why: str
) -> None:
    make(folder, secret)
    with pytest.raises(CollectError) as refused:
        collect(folder, SMALL)
    assert str(refused.value) == why


def test_a_device_is_refused_before_it_is_opened() -> None:
    root = os.open("/dev", os.O_PATH)
    try:
        with pytest.raises(CollectError, match=r"^null: a character device$"):
            collecting.read(root, "null", 10)
    finally:
        os.close(root)


def test_a_size_that_stat_tells_is_not_believed() -> None:
    root = os.open("/proc/self", os.O_PATH)
    try:
        assert os.stat("status", dir_fd=root).st_size == 0
        assert b"Name:" in collecting.read(root, "status", 1 << 16)
    finally:
        os.close(root)


@pytest.mark.parametrize(
    "path", ["../secret", "sub/../../secret", "/etc/hostname", "sub//x", "out/secret", "proc/version"]
)
def test_no_path_leads_out_of_the_folder(folder: Path, secret: Path, path: str) -> None:
    (folder / "sub").mkdir()
    (folder / "out").symlink_to("..")
    root = os.open("/" if path.startswith("proc") else folder, os.O_PATH)
    try:
        with pytest.raises(CollectError):
            collecting.read(root, path, 1 << 20)
    finally:
        os.close(root)


def test_a_folder_that_is_itself_a_link_is_not_ours(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        collect(tmp_path / "alias")


def test_what_changes_while_it_is_read_never_leads_outside_or_waits(folder: Path, secret: Path) -> None:
    """An opponent swaps file, folder, pipe and links under one name as fast as it can."""
    stop, spare = threading.Event(), folder.parent / "spare"

    def plain(path: Path) -> None:
        path.write_bytes(b"plain")

    makes = (plain, os.mkfifo, lambda p: p.symlink_to(secret), lambda p: os.link(secret, p))

    def swap() -> None:
        while not stop.is_set():
            for make in makes:
                make(spare)
                spare.rename(folder / "x")

    opponent = threading.Thread(target=swap)
    opponent.start()
    seen, refused = set(), set()
    try:
        for _ in range(600):
            try:
                seen.update(collect(folder).values())
            except CollectError as error:
                refused.add(str(error))
    finally:
        stop.set()
        opponent.join()
    assert seen <= {b"plain"}
    assert refused


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=12), st.binary(max_size=12))
)
def test_any_files_come_back_as_they_were_or_a_name_is_refused(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        written = {name: raw for name, raw in files.items() if (folder / name).write_bytes(raw) or True}
    except (OSError, UnicodeEncodeError):  # "." or a name too long: no such file can be
        return
    unfit = [name for name in written if not name.isprintable()]
    if not unfit:
        assert collect(folder) == written
        return
    with pytest.raises(CollectError) as refused:
        collect(folder)
    assert str(refused.value).startswith(tuple(map(collecting.shown, unfit)))
