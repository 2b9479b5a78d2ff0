"""Downloads of the authors' files, from a real server on the loopback interface."""

import hashlib
import multiprocessing
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from file_server import CONTENT, Server

from eval_kit.authors.fetch import UnavailableError, download, obtain
from eval_kit.authors.sources import SourceFile
from eval_kit.errors import UserError

FOLDER = "owner/name/0123abcd/some folder"


def source(server: Server, path: str = "some folder/list.tsv", content: bytes = CONTENT) -> SourceFile:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return SourceFile("owner/name", "0123abcd", path, blob, "MIT", f"{server.url}/{quote(path)}")


def files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_download_and_reuse(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    path = download(source(server), tmp_path, counted.append)
    assert path.read_bytes() == CONTENT and sum(counted) == len(CONTENT)
    assert path == tmp_path / FOLDER / "list.tsv"
    assert files(tmp_path) == [path], "no part is left"
    server.shutdown()
    server.server_close()

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    monkeypatch.setattr("eval_kit.files.atomic.file_lock", refused)
    assert download(source(server), tmp_path) == path, "from the cache, without a server and without a right to write"
    assert server.requests == [None]


@pytest.mark.parametrize("behaviour", ["good", "ignores ranges", "compresses"])
def test_resumes_where_it_broke_off(server: Server, tmp_path: Path, behaviour: str) -> None:
    server.ranges = behaviour != "ignores ranges"
    server.compresses = behaviour == "compresses"
    server.breaks_after = 100_000
    with pytest.raises(UnavailableError, match="broke off"):
        download(source(server), tmp_path)
    [part] = files(tmp_path)
    size = part.stat().st_size
    assert part.suffix == ".part" and 0 < size <= 100_000
    path = download(source(server), tmp_path)
    assert path.read_bytes() == CONTENT and files(tmp_path) == [path]
    assert server.requests == [None, f"bytes={size}-"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.tsv.part", CONTENT),  # killed between the last byte and the renaming: the rest is empty (HTTP 416)
        ("list.tsv.part", b"\0" * 5_000),  # what a power failure may leave
        ("list.tsv", CONTENT[:-1]),
    ],
)
def test_what_an_earlier_download_left_is_mended(server: Server, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / name).write_bytes(content)
    path = download(source(server), tmp_path)
    assert path.read_bytes() == CONTENT and files(tmp_path) == [path]
    assert (server.requests[0] is not None) == name.endswith(".part")


def test_refusals_are_named_and_wrong_bytes_are_not_kept(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"!"
    for status, sentence in ((404, r"list\.tsv.* 404"), (503, r"list\.tsv.* 503"), (200, r"list\.tsv changed")):
        server.status = status
        with pytest.raises(UnavailableError, match=sentence):
            download(source(server), tmp_path)
        assert files(tmp_path) == []
    server.content = CONTENT
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_two_processes_one_cache(server: Server, tmp_path: Path) -> None:
    server.slow = 0.5
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.starmap(download, [(source(server), tmp_path)] * 2)
    assert [first] == [second] == files(tmp_path) and first.read_bytes() == CONTENT
    assert server.requests == [None], "the second waited, and found it"


def test_a_cache_that_cannot_be_written(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path / "cache"))
    for get in (lambda: download(source(server), tmp_path / "cache"), lambda: obtain([source(server)])):
        with pytest.raises(UserError, match="Could not write") as caught:
            get()
        assert not isinstance(caught.value, UnavailableError) and server.requests == []
    if Path("/dev/full").exists():
        (tmp_path / FOLDER).mkdir(parents=True)
        (tmp_path / FOLDER / "list.tsv.part").symlink_to("/dev/full")  # every write fails with ENOSPC
        with pytest.raises(UserError, match="No space left"):
            download(source(server), tmp_path)


def test_obtain_tells_what_it_has_and_lacks(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_MARCO_SHIFT_CACHE", str(tmp_path))
    good = [source(server, f"list-{i}.tsv") for i in range(6)]
    wrong = source(server, "other.tsv", b"other content")
    gone = SourceFile("owner/name", "0", "gone.tsv", "0" * 40, "MIT", "http://127.0.0.1:9/gone.tsv")
    have, lacking = obtain([*good, wrong, gone])
    assert {name: path.read_bytes() for name, path in have.items()} == {file.id: CONTENT for file in good}
    assert all(path.is_relative_to(tmp_path) for path in have.values())
    assert set(lacking) == {wrong.id, gone.id}
    assert "changed" in lacking[wrong.id] and "refused" in lacking[gone.id]
    assert len(server.requests) == 7
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr("urllib.request._opener", None)  # it knows the proxies of its first use
    again, lacking = obtain([*good, wrong])
    assert again == have and len(server.requests) == 7 and "the proxy in $http_proxy" in lacking[wrong.id]


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\nx",
        b"HTTP/1.1 302 F\r\nLocation: http://[::1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 403 \x1b[31mno\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000,
        b"nothing",
    ],
)
def test_what_a_server_says_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    monkeypatch.setattr("eval_kit.authors.fetch._MOST_BYTES", 100_000)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(4096)
                connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/list.tsv"
        with pytest.raises(UnavailableError) as caught:
            download(SourceFile("owner/name", "0", "list.tsv", "0" * 40, "MIT", url), tmp_path)
    assert str(caught.value).isprintable()
