"""Blobs: named by content, durable before they are named, never served when damaged."""

import hashlib
import os
import stat

import pytest

from eventstore import blobs as module
from eventstore.blobs import Blobs
from eventstore.errors import BadInput, BlobCorrupt, BlobMissing, StoreReadOnly


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path)


@pytest.mark.parametrize("body", [b"", b"source", bytes(range(256)) * 10_000])
def test_a_blob_comes_back_by_the_digest_of_its_bytes(blobs, body):
    digest = blobs.put(body)
    assert digest == "sha256:" + hashlib.sha256(body).hexdigest()
    assert blobs.get(digest) == body
    assert blobs.has(digest)


def test_storing_twice_is_harmless_and_leaves_one_read_only_file(blobs, tmp_path):
    assert blobs.put(b"x") == blobs.put(b"x")
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    digest = hashlib.sha256(b"x").hexdigest()
    assert path == tmp_path / "blobs" / "sha256" / digest[:2] / digest[2:] == blobs.path(f"sha256:{digest}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_file_is_stored_like_its_bytes(blobs, tmp_path):
    (tmp_path / "file").write_bytes(b"y" * 3_000_000)
    assert blobs.put_file(tmp_path / "file") == blobs.put(b"y" * 3_000_000)


def test_what_is_not_a_regular_file_is_refused_without_waiting(blobs, tmp_path):
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "absent", "."):
        with pytest.raises(BadInput, match="cannot be stored as a blob"):
            blobs.put_file(tmp_path / name)


def test_a_blob_too_large_is_refused_and_leaves_nothing(tmp_path):
    blobs = Blobs(tmp_path, max_bytes=10)
    assert blobs.get(blobs.put(b"0123456789")) == b"0123456789"
    (tmp_path / "file").write_bytes(b"0123456789a")
    for store in (lambda: blobs.put(b"0123456789a"), lambda: blobs.put_file(tmp_path / "file")):
        with pytest.raises(BadInput, match="a blob of more than 10 bytes is not stored"):
            store()
    assert list((tmp_path / "blobs" / "tmp").iterdir()) == []


def test_a_missing_blob_and_a_name_that_is_no_digest_are_told_apart(blobs):
    digest = "sha256:" + "0" * 64
    with pytest.raises(BlobMissing, match=f"^blob {digest} is not stored$"):
        blobs.get(digest)
    for name in ("sha256:../../etc/passwd", "0" * 64, "sha256:" + "0" * 63, "sha256:" + "A" * 64, digest + "\n"):
        with pytest.raises(BadInput, match="is not sha256: and 64 hex digits"):
            blobs.get(name)


def test_a_damaged_blob_is_never_served_and_storing_it_again_repairs_it(blobs):
    digest = blobs.put(b"source")
    blobs.path(digest).chmod(0o644)
    blobs.path(digest).write_bytes(b"sourcE")
    with pytest.raises(BlobCorrupt, match=f"^blob {digest} does not hash to its name$"):
        blobs.get(digest)
    assert blobs.put(b"source") == digest
    assert blobs.get(digest) == b"source"


def test_a_reader_stores_nothing(tmp_path):
    digest = Blobs(tmp_path).put(b"x")
    reader = Blobs(tmp_path, read_only=True)
    assert reader.get(digest) == b"x"
    with pytest.raises(StoreReadOnly):
        reader.put(b"y")


def test_bytes_and_names_are_synced_in_the_order_that_survives_a_power_cut(blobs, monkeypatch):
    blobs.put(b"first")  # so that the directories above exist
    done = []
    fsync, rename, sync_dir = os.fsync, module.Path.rename, module.sync_dir
    monkeypatch.setattr(module.os, "fsync", lambda fd: (done.append("bytes"), fsync(fd))[1])
    monkeypatch.setattr(module.Path, "rename", lambda old, new: (done.append("rename"), rename(old, new))[1])
    monkeypatch.setattr(module, "sync_dir", lambda path: (done.append(path), sync_dir(path))[1])
    path = blobs.path(blobs.put(b"first"))
    named = [step for step in done if step != "bytes" or done.index(step) == done.index("bytes")]
    assert named[: named.index("rename") + 1] == ["bytes", "rename"]
    assert [step for step in done if step not in ("bytes", "rename")] == [path.parent, path.parent.parent]
