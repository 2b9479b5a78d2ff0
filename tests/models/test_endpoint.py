"""A model behind an embeddings endpoint, served on the loopback interface as vLLM, TEI and Ollama serve one."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from eval_kit.models.endpoint import Endpoint
from eval_kit.models.run import run
from eval_kit.release import Release
from tests.conftest import Run

KEY = "a-key-that-nobody-may-see"


def embedding(text: str) -> list[float]:
    """Letters, and a little of the whole text."""
    return [text.count(letter) + crc32(text.encode()) % 97 / 1_000 for letter in "aeioust"]


class Server(http.server.BaseHTTPRequestHandler):
    seen: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"path": self.path, "key": self.headers["Authorization"]} | asked)
        rows = [{"index": number, "embedding": embedding(text)} for number, text in enumerate(asked["input"])]
        body = json.dumps({"data": rows[::-1]} if self.status == 200 else {"error": f"{KEY} is not good"}).encode()
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.seen.append({"path": self.path, "key": self.headers["Authorization"]})
        self.send_error(410)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (Server,), {"seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/v1", handler
        listening.shutdown()


class Here:
    similarity_fn_name = "cosine"

    def encode_query(self, texts: list[str]) -> Any:
        return np.array([embedding(f"q: {text}") for text in texts])

    def encode_document(self, texts: list[str]) -> Any:
        return np.array(list(map(embedding, texts)))


def test_it_finds_what_the_model_finds_here_and_writes_its_key_nowhere(
    server: tuple[str, type[Server]],
    trainable_release: Release,
    tmp_path: Path,
    inside: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, handler = server
    monkeypatch.setenv("EMBEDDINGS_API_KEY", KEY)
    arguments = ["--release", trainable_release.folder, "--test-set", "dl19", "--no-pivot", "--out", tmp_path / "runs"]
    asked = ["--option", "model=org/name", "--option", "query_prompt=q: "]
    done = inside("eval_kit", "run", url, *asked, *arguments, "--page", tmp_path / "page.html", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "not declared" in done.stderr
    run(Here(), trainable_release, tmp_path / "here", pivots=[], test_sets=["dl19"])
    ours, theirs = (
        [line.split()[:4] for line in (tmp_path / run_file).read_text().splitlines()]
        for run_file in ("runs/name.trec", "here/Here.trec")
    )
    assert ours == theirs
    asked_as = {(each["path"], each["model"], each["key"]) for each in handler.seen}
    assert asked_as == {("/v1/embeddings", "org/name", f"Bearer {KEY}")}
    assert max(len(each["input"]) for each in handler.seen) == 32
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in written) and KEY not in done.stdout + done.stderr
    count = len(handler.seen)
    again = inside("eval_kit", "run", url, *asked, *arguments)
    assert again.returncode == 0 and len(handler.seen) < count + 5  # of the passages, those that say whether it changed


@pytest.mark.parametrize(("status", "says"), [(401, "HTTP 401"), (302, "HTTP 410"), (500, "HTTP 500")])
def test_what_it_refuses_is_a_sentence_without_the_key(
    status: int,
    says: str,
    server: tuple[str, type[Server]],
    trainable_release: Release,
    tmp_path: Path,
    inside: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, handler = server
    handler.status = status
    monkeypatch.setenv("EMBEDDINGS_API_KEY", KEY)
    arguments = ["--release", trainable_release.folder, "--test-set", "dl19", "--no-pivot", "--out", tmp_path / "runs"]
    done = inside("eval_kit", "run", url, "--option", "model=name", *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert says in done.stderr and KEY not in done.stderr
    assert {each["path"] for each in handler.seen if each["key"]} == {"/v1/embeddings"}


def test_what_it_is_asked_wrongly(server: tuple[str, type[Server]], trainable_release: Release, inside: Run) -> None:
    url, _ = server
    named = ["--option", "model=name"]
    for address, options in (
        (url, []),
        (url, ["--option", "pooling=cls"]),
        (url.replace("://", "://me:word@"), named),
        ("http://127.0.0.1:9/v1", named),
    ):
        done = inside("eval_kit", "run", address, *options, "--release", trainable_release.folder, "--no-pivot")
        assert (done.returncode, "Traceback" in done.stderr, "word@" in done.stderr) == (2, False, False), done.stderr
    assert Endpoint(url, "name").encode_document([]) == []
