"""No foreign error leaves the package, and each that a user can cause is one clear line."""

import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from eventstore import errors, schema
from eventstore.errors import (
    FenceRefused,
    LibraryTooOld,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
)
from eventstore.facts import Faulted
from eventstore.store import ANY, Store
from eventstore.translate import translated

APSW = {value for value in vars(apsw).values() if isinstance(value, type) and issubclass(value, apsw.Error)}
MEANT = {
    apsw.BusyError: StoreLocked,
    apsw.LockedError: StoreLocked,
    apsw.FullError: StoreFull,
    apsw.CorruptError: StoreCorrupt,
    apsw.NotADBError: StoreCorrupt,
    apsw.FormatError: StoreCorrupt,
    apsw.ReadOnlyError: StoreReadOnly,
    apsw.PermissionsError: StoreReadOnly,
    apsw.AuthError: StoreReadOnly,
    apsw.CantOpenError: StoreReadOnly,
    apsw.ConstraintError: FenceRefused,
}


@pytest.mark.parametrize("error", sorted(APSW, key=lambda error: error.__name__))
def test_every_error_of_apsw_becomes_ours(error):
    with pytest.raises(StoreError) as caught, translated(Path("log.sqlite")):
        raise error("two\nlines")
    assert type(caught.value) is MEANT.get(error, StoreFailed)
    assert "log.sqlite" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EFBIG, StoreFull),
        (errno.EACCES, StoreReadOnly),
        (errno.EROFS, StoreReadOnly),
        (errno.EIO, StoreFailed),
    ],
)
def test_the_operating_systems_errors_become_ours(code, ours):
    with pytest.raises(StoreError) as caught, translated(Path("log.sqlite")):
        raise OSError(code, os.strerror(code))
    assert type(caught.value) is ours


def test_our_own_errors_pass_unchanged():
    with pytest.raises(StoreCorrupt) as caught, translated(Path("log.sqlite")):
        raise StoreCorrupt(3, "reason")
    assert str(caught.value) == "corrupt log at position 3: reason"


def test_the_drawn_tree_is_the_tree():
    drawn = {word for word in (errors.__doc__ or "").split() if word.isidentifier() and hasattr(errors, word)}
    assert drawn == {name for name, value in vars(errors).items() if isinstance(value, type)}


@pytest.mark.parametrize(
    ("version", "safe"), [("3.51.2", False), ("3.9.9", False), ("3.51.3", True), ("3.100.0", True)]
)
def test_an_sqlite_with_the_corruption_bug_may_read_but_not_write(tmp_path, monkeypatch, version, safe):
    Store.open(tmp_path).close()
    monkeypatch.setattr(schema.apsw, "sqlite_lib_version", lambda: version)
    if safe:
        Store.open(tmp_path).close()
    else:
        with pytest.raises(LibraryTooOld, match=f"^SQLite {version} can corrupt a shared log; writing needs 3.51.3"):
            Store.open(tmp_path)
    Store.open(tmp_path, read_only=True).close()


def test_a_log_that_is_not_there_is_not_made_by_looking(tmp_path):
    for arguments in ({"read_only": True}, {"create": False}):
        with pytest.raises(StoreMissing, match=r"^no log at .*/home/log\.sqlite$"):
            Store.open(tmp_path / "home", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_was_never_finished_making_is_missing_to_a_reader_and_made_by_a_writer(tmp_path):
    (tmp_path / "log.sqlite").touch()
    with pytest.raises(StoreMissing, match="holds no log yet"):
        Store.open(tmp_path, read_only=True)
    with Store.open(tmp_path) as store:
        assert store.head().position == 0


def test_a_log_of_a_later_version_is_refused(tmp_path):
    Store.open(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as db:
        db.execute("PRAGMA user_version=2")
    for read_only in (True, False):
        with pytest.raises(StoreTooNew, match="has schema version 2; this program knows 1; update the program"):
            Store.open(tmp_path, read_only=read_only)


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = (tmp_path / "log.sqlite").read_bytes()
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match="is a database, but not a log of this program"):
            Store.open(tmp_path, read_only=read_only)
    assert (tmp_path / "log.sqlite").read_bytes() == before


def test_a_corrupt_log_is_one_clear_line(tmp_path):
    with Store.open(tmp_path) as store:
        store.append("ep", [Faulted(stage="s", detail="first-detail", attempt=1)] * 2, expected=ANY)
    path = tmp_path / "log.sqlite"
    body = path.read_bytes()
    path.write_bytes(body.replace(b"first-detail", b"First-detail"))
    with pytest.raises(StoreCorrupt) as caught:
        Store.open(tmp_path)
    assert str(caught.value) == "corrupt log at position 1: its content does not match its hash"
    path.write_bytes(b"noise" * 4000)
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match=r"^corrupt log: .*log\.sqlite: .*not a database$"):
            Store.open(tmp_path, read_only=read_only)


def test_a_home_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreFailed, match=r"log\.sqlite: (Not a directory|File exists)$"):
        Store.open(tmp_path / "home")


@contextmanager
def unprivileged():
    """Without root's right to ignore permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_directory_is_a_clear_error_and_never_an_outdated_answer():
    home = Path(tempfile.mkdtemp())  # pytest's own directories are closed to other users
    try:
        Store.open(home).close()
        home.chmod(0o555)
        with unprivileged():
            with pytest.raises(
                StoreReadOnly, match=r"a log needs a directory that may be written, even to be read: use a copy$"
            ):
                Store.open(home, read_only=True)
            with pytest.raises(StoreReadOnly):
                Store.open(home)
    finally:
        shutil.rmtree(home)
