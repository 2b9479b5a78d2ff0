"""Get and verify the authors' files, declared in ``sources.json``, from a local folder or from the web.

Every file is identified by its git blob id (sha1 of ``blob <size>\\0`` and the bytes), so a copy is either exactly
the pinned one or refused. Downloads go to a cache shared by all builds, resume where they broke off, and are
safe with several processes at once.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, proxy_bypass, urlopen

from eval_kit.authors.sources import SourceFile
from eval_kit.console import counting
from eval_kit.errors import UserError, disk_errors, printable
from eval_kit.files import atomic
from eval_kit.files.cache import cache_folder
from eval_kit.files.numbers import whole_number

_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 60
_MOST_BYTES, _MOST_SECONDS = 64 << 30, 6 * 3600.0
"""Of one file, and for it in one command: the next one goes on where it ended."""
_WORKERS = 4
_GIT_BLOB = "git blob"

type Advance = Callable[[int], object]


class UnavailableError(UserError):
    """A file, or a data set of ir_datasets, that cannot be obtained, with the reason: no connection, a refusal."""


def obtain(files: Iterable[SourceFile], upstream: Path | None = None) -> tuple[dict[str, Path], dict[str, str]]:
    """Get each file, verified.

    Without ``upstream``, a folder with the files at ``owner/name/path``, they are downloaded to :func:`cache_folder`.
    Returns paths by file id, and for the files that cannot be obtained the reason by file id.
    """
    have: dict[str, Path] = {}
    lacking: dict[str, str] = {}
    if upstream is not None:
        for file in files:
            path = upstream / file.id
            if not path.is_file():
                lacking[file.id] = f"{file.id} is not in the upstream folder"
            elif (git_blob := checksum(path, _GIT_BLOB)) != file.git_blob:
                raise UserError(
                    f"{path} is not the file that was expected",
                    f"Its git blob is {git_blob}, not {file.git_blob}",
                    "Remove it, and run this again",
                )
            else:
                have[file.id] = path
        return have, lacking

    folder = cache_folder()
    with counting("authors' files", "bytes") as advance, ThreadPoolExecutor(_WORKERS) as pool:
        for file, download_of in [(file, pool.submit(download, file, folder, advance)) for file in files]:
            try:
                have[file.id] = download_of.result()
            except UnavailableError as error:
                lacking[file.id] = str(error)
    return have, lacking


def download(file: SourceFile, cache: Path, advance: Advance = lambda count: None) -> Path:
    """Download one file into the cache, or find it there; see :func:`download_verified`."""
    target = cache / file.repository / file.commit / file.path
    return download_verified(file.url, target, _GIT_BLOB, file.git_blob, advance)


def download_verified(url: str, target: Path, kind: str, digest: str, advance: Advance) -> Path:
    """Download a file with a checksum of that kind to ``target``, or find it there.

    A partial earlier download is resumed.

    Raises:
        UnavailableError: no connection, a refusal (404 …), or bytes with another checksum.
        UserError: ``target`` cannot be written.
    """

    def is_whole(path: Path) -> bool:
        return path.is_file() and checksum(path, kind) == digest

    with disk_errors(target):
        if is_whole(target):  # without the lock: a finished cache may be read-only
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(target.with_name(f"{target.name}.lock")):
            if not is_whole(target):
                part = target.with_name(target.name + ".part")
                resumes = part.exists()
                _download_part(url, part, advance)
                if resumes and not is_whole(part):  # the part was damaged (power failure): start again
                    part.unlink()
                    _download_part(url, part, advance)
                if (actual := checksum(part, kind)) != digest:
                    part.unlink()
                    raise UnavailableError(f"The file at {url} changed", f"Its {kind} is {actual}, not {digest}")
                part.replace(target)
    return target


def checksum(path: Path, kind: str) -> str:
    """The id that git gives a file's content (``git blob``), or its digest of another kind (``md5``): hexadecimal."""
    is_blob = kind == _GIT_BLOB
    digest = hashlib.new("sha1" if is_blob else kind, usedforsecurity=False)
    with path.open("rb") as file:
        digest.update(b"blob %d\0" % path.stat().st_size if is_blob else b"")
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _download_part(url: str, part: Path, advance: Advance) -> None:
    size = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # a range of compressed bytes would not continue the part
    if size:
        headers["Range"] = f"bytes={size}-"
    try:
        with urlopen(Request(url, headers=headers), timeout=_TIMEOUT_SECONDS) as response:
            resumes = response.status == HTTPStatus.PARTIAL_CONTENT
            rest, room = whole_number(response.headers.get("Content-Length") or "0"), _MOST_BYTES
            if rest is None or not 0 <= rest <= room:
                raise UnavailableError(f"Could not download {url}", "The server states an impossible size")
            end = time.monotonic() + _MOST_SECONDS
            with part.open("ab" if resumes else "wb") as out:
                while chunk := response.read1(_CHUNK_BYTES):
                    out.write(chunk)
                    advance(len(chunk))
                    rest, room = rest - len(chunk), room - len(chunk)
                    if room < 0 or time.monotonic() > end:
                        what = f"{_MOST_BYTES:,} bytes" if room < 0 else f"{_MOST_SECONDS / 3600:g} hours"
                        raise UnavailableError(f"Could not download {url}", f"It was not complete after {what}")
            if rest > 0:  # what came is kept, for the next download to go on from
                raise UnavailableError(f"Could not download {url}", "The connection broke off")
    except HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise UnavailableError(
                f"Could not download {url}", f"The server answered {error.code} {printable(str(error.reason))}"
            ) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:  # of an address, the last
        reason = getattr(error, "reason", None) or error
        why, address = getattr(reason, "strerror", None) or reason or "no answer", urlsplit(url)
        is_by_proxy = address.scheme in getproxies() and not proxy_bypass(address.netloc)
        by = f" through the proxy in ${address.scheme}_proxy" if is_by_proxy else ""
        raise UnavailableError(f"Could not download {url}", f"The connection failed{by} ({why})") from error
