"""Downloads of the authors' files, from a real server on the loopback interface."""

import gzip
import hashlib
import http.server
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.sources.fetch import SourceFile, UnavailableError, checksum, download, obtain
from eval_kit.errors import UserError

CONTENT = random.Random(1).randbytes(300_000) + b"the end\n" * 1_000


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under any name; how it misbehaves is set by a test."""

    breaks_after: int | None = None  # bytes of the first answer, then the connection ends
    ranges = True
    status = 200
    compresses = False
    slow = 0.0
    content = CONTENT

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str | None] = []  # the Range header of each
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        body, start = self.server.content, 0
        encoded = self.server.compresses and "gzip" in self.headers.get("Accept-Encoding", "")
        if encoded:  # as raw.githubusercontent.com does: a range is then one of the compressed bytes
            body = gzip.compress(body)
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        if encoded:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end, self.server.breaks_after = self.server.breaks_after or len(body), None
        time.sleep(self.server.slow)
        self.wfile.write(body[start:end])
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def source(server: Server, path: str = "some folder/list.tsv", content: bytes = CONTENT) -> SourceFile:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return SourceFile("owner/name", "0123abcd", path, blob, "MIT", f"{server.url}/{path}")


def files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_blob_id_is_gits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    assert checksum(tmp_path / "file", "git blob") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_download_and_reuse(server: Server, tmp_path: Path) -> None:
    counted: list[int] = []
    path = download(source(server), tmp_path, counted.append)
    assert path.read_bytes() == CONTENT and sum(counted) == len(CONTENT)
    assert path == tmp_path / "owner/name/0123abcd/some folder/list.tsv"
    assert files(tmp_path) == [path], "no part is left"
    server.shutdown()
    server.server_close()
    assert download(source(server), tmp_path) == path, "from the cache, without a server"
    assert server.requests == [None]


def test_resumes_where_it_broke_off(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 100_000
    with pytest.raises(UnavailableError, match="cannot be downloaded"):
        download(source(server), tmp_path)
    (part,) = files(tmp_path)
    assert part.suffix == ".part"
    kept = part.stat().st_size
    assert 0 < kept <= 100_000
    assert download(source(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, f"bytes={kept}-"]
    assert [path.suffix for path in files(tmp_path)] == [".tsv"]


@pytest.mark.parametrize("misbehaviour", ["ignores ranges", "compresses", "was complete"])
def test_resumes_from_an_awkward_server(server: Server, tmp_path: Path, misbehaviour: str) -> None:
    """Complete: killed between the last byte and the renaming, so that the rest is empty (HTTP 416)."""
    server.ranges = misbehaviour != "ignores ranges"
    server.compresses = misbehaviour == "compresses"
    server.breaks_after = None if misbehaviour == "was complete" else 100_000
    try:
        path = download(source(server), tmp_path)
        path.rename(path.with_name(path.name + ".part"))
    except UnavailableError:
        assert misbehaviour != "was complete"
    assert download(source(server), tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2 and server.requests[1] is not None


@pytest.mark.parametrize("status", [404, 503])
def test_refusal_is_named(server: Server, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(UnavailableError, match=f"list.tsv: HTTP {status}"):
        download(source(server), tmp_path)
    assert files(tmp_path) == []


def test_wrong_bytes_are_not_kept(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(UnavailableError, match="is not the declared file"):
        download(source(server), tmp_path)
    assert files(tmp_path) == []
    server.content = CONTENT
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_stale_part_does_not_stick(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "owner/name/0123abcd/some folder/list.tsv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\0" * 5_000)  # what a power failure may leave
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_damaged_cache_is_mended(server: Server, tmp_path: Path) -> None:
    path = download(source(server), tmp_path)
    path.write_bytes(CONTENT[:-1])
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_two_processes_one_cache(server: Server, tmp_path: Path) -> None:
    server.slow = 0.5
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=download, args=(source(server), tmp_path)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.read_bytes() for path in files(tmp_path)] == [CONTENT]
    assert server.requests == [None], "the second waited, and found it"


def test_unwritable_cache(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="cannot be written") as caught:
        download(source(server), tmp_path / "cache")
    assert not isinstance(caught.value, UnavailableError) and server.requests == []
    with pytest.raises(UserError, match="cannot be written"):
        obtain([source(server)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "owner/name/0123abcd/some folder/list.tsv.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")  # every write fails with ENOSPC
    with pytest.raises(UserError, match="cannot be written: No space left"):
        download(source(server), tmp_path)


def test_finished_cache_may_be_read_only(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = download(source(server), tmp_path)

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    monkeypatch.setattr("builder.sources.fetch.FileLock", refused)
    assert download(source(server), tmp_path) == path


def test_obtain_tells_what_it_has_and_lacks(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path))
    good = [source(server, f"list-{i}.tsv") for i in range(6)]
    wrong = source(server, "other.tsv", b"other content")
    gone = SourceFile("owner/name", "0", "gone.tsv", "0" * 40, "MIT", "http://127.0.0.1:9/gone.tsv")
    have, lacking = obtain([*good, wrong, gone])
    assert {name: path.read_bytes() for name, path in have.items()} == {file.id: CONTENT for file in good}
    assert set(lacking) == {wrong.id, gone.id}
    assert "is not the declared file" in lacking[wrong.id] and "ConnectionError" in lacking[gone.id]
    assert len(server.requests) == 7
    again, _ = obtain(good)
    assert again == have and len(server.requests) == 7


def test_cache_folder_from_the_environment(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path / "here"))
    have, _ = obtain([source(server)])
    assert [path.is_relative_to(tmp_path / "here") for path in have.values()] == [True]
