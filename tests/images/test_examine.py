"""A built image against what its build recorded: one changed file in a copy is seen, and so is a changed record."""

from __future__ import annotations

import io
import json
import re
import tarfile
import uuid
from contextlib import closing
from dataclasses import replace

import pytest

from images import contents, cpu, examine, lock, sbom
from images import engine as daemon
from images.api import Image, ImageFault
from images.lock import Pin

SITE = "opt/venv/lib/python3.11/site-packages"
STATUS = """Package: gcc
Status: install ok installed
Architecture: amd64
Description: a compiler
 Status: not a field but a line of the description
Version: 4:12.2.0-3

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
FILES = {
    "var/lib/dpkg/status": STATUS.encode(),
    "usr/lib/os-release": b'NAME="Debian"\nVERSION_CODENAME=bookworm\n',
    f"{SITE}/torch/__init__.py": b"answer = 42\n",
    f"{SITE}/torch-2.13.0+cpu.dist-info/METADATA": b"Name: torch\n",
    f"{SITE}/typing_extensions-4.16.0.dist-info/METADATA": b"Name: typing_extensions\n",
}


def tar(files=FILES, mode=0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            made.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        made.addfile(link)
    return out.getvalue()


def pieces(content: bytes, size: int = 700):
    return (content[start : start + size] for start in range(0, len(content), size))


def entries(*args, **kw):
    return contents.of_tar(pieces(tar(*args, **kw))).entries


def test_every_entry_is_read_whatever_the_pieces_and_what_an_engine_adds_is_left_out():
    files = {**FILES, "etc/hosts": b"127.0.0.1 x", ".dockerenv": b"", "dev/console": b"", "etc/hosts.allow": b""}
    whole, small = contents.of_tar([tar(files)]), contents.of_tar(pieces(tar(files), 1), ("var/lib/dpkg/status",))
    assert whole.entries == small.entries
    assert set(whole.entries) == {*FILES, "etc/hosts.allow", "bin"}
    assert whole.entries["bin"] == "link 644 0:0 usr/bin"
    assert (whole.texts, small.texts) == ({}, {"var/lib/dpkg/status": STATUS})
    with pytest.raises(tarfile.ReadError):
        contents.of_tar(pieces(tar()[:2000]))


def test_a_changed_byte_mode_or_link_an_added_and_a_missing_file_are_named():
    changed = {**FILES, f"{SITE}/torch/__init__.py": b"answer = 43\n", "evil.pth": b""}
    del changed["usr/lib/os-release"]
    assert contents.differences(entries(), entries(changed)) == [
        "added: /evil.pth",
        f"changed: /{SITE}/torch/__init__.py",
        "missing: /usr/lib/os-release",
    ]
    assert contents.differences(entries(), entries()) == []
    assert len(contents.differences(entries(), entries(mode=0o4755))) == len(FILES)


def bill(**changed):
    given = {
        "at": "2026-01-31T12:00:00Z",
        "debian": sbom.debian_packages(STATUS),
        "suite": "bookworm",
        "python": sbom.python_packages(FILES),
        "pins": (Pin("torch", "2.13.0+cpu", "a" * 64), Pin("typing-extensions", "4.15.0", "b" * 64)),
        "properties": {"lock": "sha256:x"},
    }
    return sbom.document("cpu", "sha256:" + "c" * 64, **{**given, **changed})


def assert_cyclonedx_1_5(document) -> None:
    """What the 1.5 schema demands of the parts that we write, and that we write no other key."""
    assert set(document) == {"bomFormat", "specVersion", "serialNumber", "version", "metadata", "components"}
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.5", 1)
    assert str(uuid.UUID(document["serialNumber"].removeprefix("urn:uuid:"))) in document["serialNumber"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["metadata"]["timestamp"])
    assert set(document["metadata"]) == {"timestamp", "tools", "component"}
    for tool in document["metadata"]["tools"]["components"]:
        assert (tool["type"], set(tool)) == ("application", {"type", "name"})
    image = document["metadata"]["component"]
    assert (image["type"], set(image)) == ("container", {"type", "bom-ref", "name", "version", "properties"})
    assert all(set(one) == {"name", "value"} and isinstance(one["value"], str) for one in image["properties"])
    for part in document["components"]:
        assert (
            {"type", "bom-ref", "name", "version", "purl"}
            <= set(part)
            <= {
                *("type", "bom-ref", "name", "version", "purl", "hashes"),
            }
        )
        assert part["type"] == "library"
        assert re.fullmatch(r"pkg:(pypi/[a-z0-9-]+|deb/debian/[a-z0-9.%A-F-]+)@[\w.%~-]+(\?[\w=&.-]+)?", part["purl"])
        for one in part.get("hashes", []):
            assert (one["alg"], bool(re.fullmatch("[0-9a-f]{64}", one["content"]))) == ("SHA-256", True)
    refs = [part["bom-ref"] for part in (image, *document["components"])]
    assert len(refs) == len(set(refs))


def test_the_bill_of_materials_has_what_is_there_and_only_hashes_that_the_lock_has():
    document = bill()
    assert_cyclonedx_1_5(document)
    assert [(part["name"], part["version"], "hashes" in part) for part in document["components"]] == [
        ("torch", "2.13.0+cpu", True),
        ("typing-extensions", "4.16.0", False),
        ("gcc", "4:12.2.0-3", False),
    ]
    assert document["components"][2]["purl"] == "pkg:deb/debian/gcc@4%3A12.2.0-3?arch=amd64&distro=bookworm"
    assert document["serialNumber"] == bill(at="2027-01-31T12:00:00Z")["serialNumber"]


def test_a_package_that_the_bill_does_not_have_is_named():
    now = contents.of_tar(pieces(tar()), (sbom.DPKG_STATUS,))
    assert examine._bill_differences(bill(), now) == []
    assert examine._bill_differences(bill(debian=[("cc", "1", "amd64")]), now) == [
        "in the bill of materials only: cc 1",
        "not in the bill of materials: gcc 4:12.2.0-3",
    ]


def test_an_image_without_a_record_of_its_contents_has_to_be_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "verify", lambda image: None)
    cpu._pin(tmp_path, Image("cpu", "sha256:" + "a" * 64, cpu.PYTHON))
    with pytest.raises(ImageFault, match=r"built without contents\.json: build it again"):
        examine.differences(tmp_path, "cpu")


@pytest.fixture
def imported(tmp_path):
    """A tiny image, recorded as a build records its own, and a place to note further images that have to go."""
    tag = f"t{uuid.uuid4().hex[:12]}"
    with closing(daemon.connect(60)) as client:
        client.import_image_from_data(tar(), repository="assay-t", tag=tag)
        built = daemon.image_id(client, f"assay-t:{tag}")
        manifest = {"base_sha256": "0" * 64, "lock": lock.digest("cpu")}
        manifest |= cpu._record(client, tmp_path, built, manifest)
        image = Image("cpu", built, cpu.PYTHON, built, manifest=manifest)
        cpu._pin(tmp_path, image)
        others: list[str] = []
        yield image, others, client
        for each in (*others, built):
            client.remove_image(each, force=True)


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_an_untouched_image_is_verified_and_its_records_guard_each_other(engine, imported, tmp_path):
    image, _, _ = imported
    assert examine.differences(tmp_path, "cpu") == []
    folder = cpu.record_folder(tmp_path, image.digest)
    document = json.loads((folder / "sbom.json").read_text())
    assert_cyclonedx_1_5(document)
    document["components"].pop(0)
    (folder / "sbom.json").write_text(json.dumps(document))
    assert examine.differences(tmp_path, "cpu") == [
        "changed: the record sbom.json",
        "not in the bill of materials: torch 2.13.0+cpu",
    ]
    (folder / "sbom.json").unlink()
    with pytest.raises(ImageFault, match=r"sbom\.json"):
        examine.differences(tmp_path, "cpu")


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_one_changed_file_in_a_copy_of_the_image_is_seen(engine, imported, tmp_path):
    """The copy stands for storage that was written to under our feet: its files are in the place of the image's own."""
    image, others, client = imported
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as made:
        for name, text in (
            ("Dockerfile", f"FROM {image.digest}\nCOPY changed /{SITE}/torch/__init__.py\n".encode()),
            ("changed", b"answer = 43\n"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text))
    context.seek(0)
    tag = f"assay-t:d{uuid.uuid4().hex[:12]}"
    said = list(client.build(fileobj=context, custom_context=True, tag=tag, network_mode="none", decode=True))
    derived = daemon.image_id(client, tag)
    others.append(derived)
    copy = cpu.record_folder(tmp_path, derived)
    cpu.record_folder(tmp_path, image.digest).rename(copy)
    cpu._pin(tmp_path, replace(image, digest=derived, engine_ref=derived))
    assert examine.differences(tmp_path, "cpu") == [f"changed: /{SITE}/torch/__init__.py"], said


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_an_image_from_another_lock_is_named(engine, imported, tmp_path):
    image, _, _ = imported
    cpu._pin(tmp_path, replace(image, manifest={**image.manifest, "lock": "sha256:old"}))
    assert examine.differences(tmp_path, "cpu") == [f"lock: built from sha256:old, here is {lock.digest('cpu')}"]
