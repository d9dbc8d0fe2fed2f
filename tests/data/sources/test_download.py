from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedqcl.data.sources.download import fetch, install, require, staging, unpack, unpack_tar
from fedqcl.errors import InputError


def make_zip(path: Path, members: dict[str, str]) -> str:
    """Write a zip archive; give its MD5."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder that stands for a web site."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_install_downloads_and_unpacks(tmp_path: Path, site: Path) -> None:
    md5 = make_zip(site / "set.zip", {"set/a.txt": "A", "set/deep/b.txt": "B"})
    root = tmp_path / "new" / "root"
    install(root / "set", (site / "set.zip").as_uri(), md5, fetch, unpack)
    assert (root / "set" / "a.txt").read_text() == "A"
    assert (root / "set" / "deep" / "b.txt").read_text() == "B"
    assert [path.name for path in root.iterdir()] == ["set"]


def test_install_uses_an_archive_that_is_there(tmp_path: Path) -> None:
    md5 = make_zip(tmp_path / "set.zip", {"set/a.txt": "A"})
    install(tmp_path / "set", "http://127.0.0.1:9/set.zip", md5, fetch, unpack)
    assert (tmp_path / "set" / "a.txt").read_text() == "A"
    assert (tmp_path / "set.zip").is_file()


def test_install_refuses_a_damaged_archive_that_is_there(tmp_path: Path) -> None:
    make_zip(tmp_path / "set.zip", {"set/a.txt": "A"})
    with pytest.raises(InputError, match=r"set\.zip: damaged or not the official archive; delete it"):
        install(tmp_path / "set", "http://127.0.0.1:9/set.zip", "0" * 32, fetch, unpack)
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_install_without_network_names_the_host_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        install(tmp_path / "set", "http://127.0.0.1:9/set.zip", "0" * 32, fetch, unpack)
    message = str(raised.value)
    assert message.startswith("data.source.download: no set.zip from 127.0.0.1 (")
    assert message.endswith(f"; try again, or put it into {tmp_path} by hand")
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_install_leaves_nothing_of_a_download_with_another_checksum(tmp_path: Path, site: Path) -> None:
    make_zip(site / "set.zip", {"set/a.txt": "A"})
    root = tmp_path / "root"
    with pytest.raises(InputError, match=r"it arrived damaged: its checksum differs"):
        install(root / "set", (site / "set.zip").as_uri(), "0" * 32, fetch, unpack)
    assert list(root.iterdir()) == []


def test_install_leaves_nothing_of_an_archive_that_is_no_zip(tmp_path: Path) -> None:
    (tmp_path / "set.zip").write_bytes(b"some text")
    md5 = hashlib.md5(b"some text").hexdigest()
    with pytest.raises(InputError, match=r"set\.zip: cannot be unpacked \(File is not a zip file\)"):
        install(tmp_path / "set", "http://127.0.0.1:9/set.zip", md5, fetch, unpack)
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_install_leaves_nothing_of_an_interrupted_unpacking(tmp_path: Path) -> None:
    md5 = make_zip(tmp_path / "set.zip", {"set/a.txt": "A", "set/b.txt": "B"})

    def interrupted(archive: Path, folder: Path) -> None:
        (folder / "set").mkdir()
        (folder / "set" / "a.txt").write_text("A")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(tmp_path / "set", "http://127.0.0.1:9/set.zip", md5, fetch, interrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


def test_install_refuses_an_archive_of_something_else(tmp_path: Path) -> None:
    md5 = make_zip(tmp_path / "set.zip", {"other/a.txt": "A"})
    with pytest.raises(InputError, match=r"set: cannot be made from the archive"):
        install(tmp_path / "set", "http://127.0.0.1:9/set.zip", md5, fetch, unpack)


def test_install_keeps_what_another_machine_finished_first(tmp_path: Path) -> None:
    md5 = make_zip(tmp_path / "set.zip", {"set/a.txt": "A"})

    def overtaken(archive: Path, folder: Path) -> None:
        unpack(archive, folder)
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "a.txt").write_text("the other's")

    install(tmp_path / "set", "http://127.0.0.1:9/set.zip", md5, fetch, overtaken)
    assert (tmp_path / "set" / "a.txt").read_text() == "the other's"


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/evil", "C:\\evil", "C:evil", "..\\evil", "\\evil"])
def test_unpack_refuses_members_outside_the_folder(tmp_path: Path, name: str) -> None:
    make_zip(tmp_path / "set.zip", {"set/a.txt": "A", name: "evil"})
    target = tmp_path / "in" / "here"
    with pytest.raises(InputError, match=r"set\.zip: unsafe member"):
        unpack(tmp_path / "set.zip", target)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["set.zip"]


def test_unpack_refuses_links(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("set/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr(link, "/etc")
    with pytest.raises(InputError, match=r"unsafe member 'set/link'"):
        unpack(tmp_path / "set.zip", tmp_path / "here")


def make_tar(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, kind == tarfile.REGTYPE
    return made


UNSAFE = [
    *[member(name) for name in ("../evil", "set/../../evil", "/evil", "C:\\evil", "..\\evil")],
    member("set/link", tarfile.SYMTYPE, "/etc"),
    member("set/link", tarfile.LNKTYPE, "../evil"),
    member("set/device", tarfile.CHRTYPE),
    member("set/pipe", tarfile.FIFOTYPE),
]


@pytest.mark.parametrize("unsafe", UNSAFE, ids=lambda unsafe: f"{unsafe.name}-{unsafe.type!r}")
def test_unpack_tar_refuses_what_is_no_file_below_the_folder(tmp_path: Path, unsafe: tarfile.TarInfo) -> None:
    make_tar(tmp_path / "set.tar.gz", member("set/a.txt"), unsafe)
    with pytest.raises(InputError, match=r"set\.tar\.gz: unsafe member"):
        unpack_tar(tmp_path / "set.tar.gz", tmp_path / "in" / "here")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["set.tar.gz"]


def test_unpack_tar(tmp_path: Path) -> None:
    make_tar(tmp_path / "set.tar.gz", member("set", tarfile.DIRTYPE), member("set/a.txt"))
    unpack_tar(tmp_path / "set.tar.gz", tmp_path)
    assert (tmp_path / "set" / "a.txt").read_text() == "x"


def test_staging_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=r"^data\.source\.root: cannot write to .*file.*; choose another folder$"),
        staging(tmp_path / "file"),
    ):
        pass


def test_require_names_key_and_folder(tmp_path: Path) -> None:
    require(tmp_path)
    with pytest.raises(InputError, match=r"^data\.source\.root: .* has no folder set; .*data\.source\.download"):
        require(tmp_path / "set")
