"""Fetching archives and unpacking them so that half a data set is never mistaken for a whole one."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PureWindowsPath
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from fedqcl.data.sources.base import reason
from fedqcl.errors import InputError

TIMEOUT = 30.0
"""Seconds without an answer after which a download is given up."""

_CHUNK = 1 << 20


def announce(line: str) -> None:
    """Say on stderr what is about to take long."""
    print(line, file=sys.stderr, flush=True)


def require(folder: Path) -> None:
    """Check that a data set's folder is there.

    Raises:
        InputError: it is not.
    """
    if not folder.is_dir():
        raise InputError(
            f"data.source.root: {folder.parent} has no folder {folder.name}; "
            "name the folder that has it, or set data.source.download to true"
        )


def install(
    folder: Path,
    url: str,
    md5: str,
    fetch: Callable[[str, Path, str], None],
    unpack: Callable[[Path, Path], None],
) -> None:
    """Make a data set's folder from its archive; it appears whole or not at all.

    Args:
        folder: what to make; an archive that already lies beside it is used instead of a download.
        url: the archive's address.
        md5: its checksum, 32 hexadecimal digits.
        fetch: downloads: address, file to write, checksum.
        unpack: unpacks: archive, folder to unpack into.

    Raises:
        InputError: no connection, no space, a damaged archive, or one that does not hold the folder.
    """
    with staging(folder.parent) as temporary:
        archive = _archive(folder.parent, temporary, url, md5, fetch)
        announce(f"unpacking {archive.name}")
        try:
            unpack(archive, temporary)
        except (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
            raise InputError(f"{archive}: cannot be unpacked ({reason(error)})") from error
        _publish(temporary / folder.name, folder)


def _archive(root: Path, temporary: Path, url: str, md5: str, fetch: Callable[[str, Path, str], None]) -> Path:
    """The archive that lies in ``root``, or else one that is downloaded into ``temporary``."""
    name = url.rsplit("/", 1)[-1]
    if (root / name).is_file():
        _check_archive(root / name, md5)
        return root / name
    announce(f"downloading {url}")
    try:
        fetch(url, temporary / name, md5)
    except (OSError, HTTPException, RuntimeError) as error:
        raise InputError(
            f"data.source.download: no {name} from {urlsplit(url).hostname or url} "
            f"({reason(error)}); try again, or put it into {root} by hand"
        ) from error
    return temporary / name


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A hidden folder in ``root`` to make things in; what has not been moved out at the end is removed.

    Raises:
        InputError: ``root`` cannot be written to.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=root, prefix=".staging-", ignore_cleanup_errors=True)
    except OSError as error:
        problem = f"cannot write to {root} ({error.strerror})"
        raise InputError(f"data.source.root: {problem}; choose another folder") from error
    with folder as name:
        yield Path(name)


def fetch(url: str, target: Path, md5: str) -> None:
    """Download a file, with a progress bar on a terminal.

    Args:
        url: where from.
        target: where to.
        md5: the checksum it must have, 32 hexadecimal digits.

    Raises:
        OSError: no connection, no space, or a file with another checksum.
        HTTPException: an answer that is not HTTP.
    """
    from rich.console import Console
    from rich.progress import Progress

    digest = hashlib.md5(usedforsecurity=False)
    console = Console(stderr=True)
    with (
        urlopen(Request(url, headers={"User-Agent": "fedqcl"}), timeout=TIMEOUT) as answer,
        target.open("wb") as file,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        length = answer.headers.get("Content-Length")
        bar = progress.add_task(target.name, total=int(length) if length else None)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            digest.update(chunk)
            progress.advance(bar, len(chunk))
    if digest.hexdigest() != md5:
        raise OSError("it arrived damaged: its checksum differs from the official one")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip archive.

    Args:
        archive: the zip file.
        folder: where to; nothing is unpacked if any member would land outside it.

    Raises:
        InputError: a member that is a link or points out of ``folder``.
        OSError: no space; ``zipfile`` and ``zlib`` raise errors of their own for a damaged archive.
    """
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if _leads_out(member.filename) or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _unsafe(archive, member.filename)
        members.extractall(folder)


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, as :func:`unpack` does a zip archive."""
    with tarfile.open(archive) as members:
        for member in members:
            if _leads_out(member.name) or not (member.isreg() or member.isdir()):
                raise _unsafe(archive, member.name)
        members.extractall(folder)


def _leads_out(name: str) -> bool:
    """Whether a member's name points out of the folder that it is unpacked into; both kinds of slash count."""
    path = PureWindowsPath(name)
    return bool(path.anchor) or os.pardir in path.parts


def _unsafe(archive: Path, name: str) -> InputError:
    return InputError(f"{archive}: unsafe member {name!r}; get the official archive")


def _check_archive(archive: Path, md5: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with archive.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise InputError(f"{archive}: cannot be read ({error.strerror})") from error
    if digest.hexdigest() != md5:
        raise InputError(f"{archive}: damaged or not the official archive; delete it to have it downloaded again")


def _publish(made: Path, folder: Path) -> None:
    """Give a finished folder its name in one step; where another machine was faster, keep the other's."""
    try:
        made.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise InputError(f"{folder}: cannot be made from the archive ({error.strerror})") from error
