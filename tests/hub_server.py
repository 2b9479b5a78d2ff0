"""A small Hugging Face Hub on the loopback interface: real repositories with commits and tags, and faults on demand.

It speaks what the unmodified clients need: the dataset API, git LFS uploads (whole and in parts), and the Xet protocol
both ways (:mod:`xet`); clients without Xet get the same files over plain HTTP. Content is addressed by hash, a commit
is a whole tree, refs move only when a commit or a tag is complete.
"""

import base64
import hashlib
import http.server
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import xet
import yaml

type Tree = dict[str, "Blob"]
type Answer = tuple[int, Any, dict[str, str]]
type Act = int | str | Answer | Callable[["Hub"], object]

GITATTRIBUTES = b"".join(b"*.%s filter=lfs diff=lfs merge=lfs -text\n" % kind for kind in (b"parquet", b"png"))
TOKEN = "hf_SecretOfTheWriter"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).isoformat().replace("+00:00", ".000Z")


@dataclass(frozen=True)
class Blob:
    """A file's content; ``lfs`` says how git keeps it."""

    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{self.sha256}", f"size {len(self.content)}")
        return "".join(line + "\n" for line in lines).encode()

    @property
    def oid(self) -> str:
        data = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    """One whole state of a repository."""

    oid: str
    parent: str | None
    title: str
    tree: Tree


@dataclass
class Repository:
    """Commits by id, main's head and the tags."""

    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    head: str = ""
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, title: str, tree: Tree) -> Commit:
        """Add a commit on main."""
        content = json.dumps([self.head, title, {path: blob.oid for path, blob in sorted(tree.items())}])
        commit = Commit(hashlib.sha1(content.encode()).hexdigest(), self.head or None, title, dict(tree))
        self.commits[commit.oid] = commit
        self.head = commit.oid
        return commit

    def at(self, revision: str) -> Commit | None:
        """The commit of a branch, tag or commit id."""
        oid = self.head if revision in ("main", "refs/heads/main") else self.tags.get(revision, revision)
        return self.commits.get(oid)


@dataclass
class Fault:
    """What happens instead of (or around) a step, ``times`` times, the first ``after`` requests being spared.

    Of ``id`` only, where it is given.

    ``act``: an HTTP status; ``reset``: the connection is reset before the step; ``lost``: the step is done and its
    reply lost; ``kill``: the server dies in mid-request and stays down until :meth:`Hub.restart`; ``stall``: no
    answer comes; an answer of its own; or something called just before the step.
    """

    step: str
    act: Act
    times: int
    after: int
    id: str | None = None


class RefusalError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.answer = (status, {"error": message or code}, {"X-Error-Code": code} if code else {})


class Hub:
    """The server and all that it keeps; ``restart`` brings it back on the same port with nothing forgotten."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # LFS objects by sha256
        self.parts: dict[str, dict[int, bytes]] = {}  # of LFS objects that are not complete
        self.part_bytes: int | None = None  # LFS objects larger than this are sent in parts of it
        self.store = xet.Store()
        self.accounts: dict[str, set[str]] = {TOKEN: {"org"}}  # token -> namespaces it may write to
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, int]] = []  # step, path, bytes received
        self.stopped = threading.Event()
        self.lock = threading.RLock()
        self._server: _Server | None = None
        self._place = socket.socket()  # bound and never listening: keeps the port ours while the server is down
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port: int = self._place.getsockname()[1]
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def restart(self) -> None:
        """Listen again, on the same port."""
        if self._server is None:
            self.stopped.clear()
            self._server = _Server(self, self._port)
            threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on, and break the open ones."""
        with self.lock:
            server, self._server = self._server, None
        self.stopped.set()
        if server is not None:
            server.shutdown()
            server.server_close()
            for connection in list(server.connections):
                _reset(connection)

    def fault(self, step: str, act: Act, times: int = 1_000, after: int = 0, id: str | None = None) -> None:
        """Let ``act`` befall ``times`` requests of ``step``, from the one ``after`` the next."""
        self.faults.append(Fault(step, act, times, after, id))

    def heal(self) -> None:
        """No more faults, and up again."""
        self.faults.clear()
        self.restart()

    def steps(self) -> list[str]:
        """The steps asked for so far."""
        return [step for step, _, _ in self.requests]

    def take_fault(self, step: str, id: str | None) -> Act | None:
        """The fault that befalls this request."""
        with self.lock:
            for fault in self.faults:
                if fault.id not in (None, id):
                    continue
                if fault.step == step and fault.after:
                    fault.after -= 1
                elif fault.step == step and fault.times:
                    fault.times -= 1
                    return fault.act
        return None


class _DroppedError(Exception):
    """The connection is gone; there is nobody to answer."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = True
    request_queue_size = 64

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub = hub
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients and faults break connections; nothing to report."""


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(connection.detach())
    except OSError:
        pass


ID = r"(?P<id>[^/]+/[^/]+)"
OF = rf"/api/(?:datasets|models)/{ID}"
ROUTES = [
    (step, method, re.compile(pattern))
    for step, method, pattern in (
        ("create", "POST", r"/api/repos/create"),
        ("validate_yaml", "POST", r"/api/validate-yaml"),
        ("refs", "GET", rf"{OF}/refs"),
        ("tree", "GET", rf"{OF}/tree/(?P<rev>[^/]+)(?:/(?P<path>.+))?"),
        ("paths_info", "POST", rf"{OF}/paths-info/(?P<rev>[^/]+)"),
        ("preupload", "POST", rf"{OF}/preupload/(?P<rev>[^/]+)"),
        ("commit", "POST", rf"{OF}/commit/(?P<rev>[^/]+)"),
        ("tag", "POST", rf"{OF}/tag/(?P<rev>[^/]+)"),
        ("xet_token", "GET", rf"{OF}/xet-write-token/(?P<rev>[^/]+)"),
        ("xet_read_token", "GET", rf"{OF}/xet-read-token/(?P<rev>[^/]+)"),
        ("info", "GET", rf"{OF}(?:/revision/(?P<rev>[^/]+))?"),
        ("lfs_batch", "POST", rf"(?:/datasets)?/{ID}\.git/info/lfs/objects/batch"),
        ("put", "PUT", r"/lfs/(?P<oid>[0-9a-f]{64})"),
        ("part", "PUT", r"/lfs/(?P<oid>[0-9a-f]{64})/(?P<number>\d+)"),
        ("complete", "POST", r"/lfs/(?P<oid>[0-9a-f]{64})/complete"),
        ("resolve", "GET", rf"(?:/datasets)?/{ID}/resolve/(?P<rev>[^/]+)/(?P<path>.+)"),
        ("xorb", "POST", r"/cas/v1/xorbs/default/(?P<hash>[0-9a-f]{64})"),
        ("shard", "POST", r"/cas/(?:v1/)?shards"),
        ("reconstruction", "GET", r"/cas/v1/reconstructions/(?P<hash>[0-9a-f]{64})"),
        ("xorb_data", "GET", r"/xorbs/(?P<hash>[0-9a-f]{64})"),
    )
]
WRITES = {"create", "preupload", "commit", "tag", "xet_token", "lfs_batch"}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read :attr:`Hub.requests`."""

    def _serve(self) -> None:
        hub, method = self.server.hub, self.command.replace("HEAD", "GET")
        path = urlsplit(self.path).path
        matches = ((step, pattern.fullmatch(path)) for step, wanted, pattern in ROUTES if wanted == method)
        step, found = next(((step, found) for step, found in matches if found), ("unknown", None))
        if found is None:
            self._body()
            hub.requests.append((step, f"{method} {path}", 0))
            return self._send(RefusalError(404, message="no such endpoint").answer)
        act = hub.take_fault(step, found.groupdict().get("id"))
        if act == "kill":
            self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
            hub.stop()
            raise _DroppedError
        body = self._body()
        hub.requests.append((step, path, len(body)))
        if act == "reset":
            return self._drop()
        if act == "stall":
            hub.stopped.wait(60)
            return self._drop()
        if isinstance(act, int):
            return self._send(RefusalError(act, "RepoNotFound" if act == 404 else "", f"fault {act}").answer)
        if isinstance(act, tuple):
            return self._send(act)
        if callable(act):
            act(hub)
        groups = {key: unquote(value) for key, value in found.groupdict().items() if value is not None}
        try:
            with hub.lock:
                if step in WRITES or "id" in groups:
                    self._authorise(step, groups.get("id"), body)
                answer = getattr(self, f"_{step}")(body=body, **groups)
        except RefusalError as refusal:
            answer = refusal.answer
        if act == "lost":
            return self._drop()
        return self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            raise _DroppedError  # the client went away: nothing of it may count
        return body

    def _drop(self) -> None:
        _reset(self.connection)
        raise _DroppedError

    def _send(self, answer: Answer) -> None:
        status, content, headers = answer
        if isinstance(content, bytes):
            body = content
        else:
            body = json.dumps(content).encode()
            headers = {"Content-Type": "application/json", **headers}
        self.send_response(status)
        self.send_header("Content-Length", str(headers.pop("Length", len(body))))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # who may do what

    def _authorise(self, step: str, id: str | None, body: bytes) -> None:
        hub = self.server.hub
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in hub.accounts:
            raise RefusalError(401, message="Invalid credentials in Authorization header")
        namespaces = hub.accounts.get(token, set())
        if step == "create":
            id = "{organization}/{name}".format(**json.loads(body))
        namespace = str(id).split("/")[0]
        repository = hub.repositories.get(str(id))
        hidden = repository is not None and repository.private and namespace not in namespaces
        if step != "create" and (repository is None or hidden):
            raise RefusalError(404 if token else 401, "RepoNotFound", "Repository not found")
        if step in WRITES and not token:
            raise RefusalError(401, message="Invalid username or password.")
        if step in WRITES and namespace not in namespaces and (step != "create" or repository is None):
            raise RefusalError(403, message=f"You don't have the rights to write to {namespace}")

    def _repository(self, id: str) -> Repository:
        return self.server.hub.repositories[id]

    def _at(self, id: str, rev: str) -> Commit:
        if (commit := self._repository(id).at(rev)) is None:
            raise RefusalError(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        return commit

    # the API

    def _create(self, body: bytes) -> Answer:
        wanted = json.loads(body)
        id = f"{wanted['organization']}/{wanted['name']}"
        url = f"{self.server.hub.url}/datasets/{id}"
        if id in self.server.hub.repositories:
            return 409, {"error": "You already created this dataset repo", "url": url}, {}
        repository = Repository(private=wanted.get("visibility") == "private")
        repository.commit("initial commit", {".gitattributes": Blob(GITATTRIBUTES, False)})
        self.server.hub.repositories[id] = repository
        return 200, {"url": url, "name": id, "id": id}, {}

    def _validate_yaml(self, body: bytes) -> Answer:
        content = json.loads(body)["content"]
        parts = content.split("---\n", 2)
        try:
            data = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0] else None
        except yaml.YAMLError as error:
            return 400, {"errors": [{"message": str(error)}], "warnings": []}, {}
        if not isinstance(data, dict):
            return 400, {"errors": [{"message": "no metadata"}], "warnings": []}, {}
        return 200, {"errors": [], "warnings": []}, {}

    def _info(self, id: str, body: bytes, rev: str = "main") -> Answer:
        commit = self._at(id, rev)
        files = [{"rfilename": path} for path in sorted(commit.tree)]
        facts = {"id": id, "author": id.split("/")[0], "sha": commit.oid, "private": self._repository(id).private}
        dates = {"lastModified": EPOCH, "createdAt": EPOCH}
        none = {"gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}
        return 200, facts | dates | none | {"siblings": files}, {}

    def _refs(self, id: str, body: bytes) -> Answer:
        repository = self._repository(id)

        def ref(kind: str, name: str, oid: str) -> dict[str, str]:
            return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid}

        branches = [ref("heads", "main", repository.head)]
        tags = [ref("tags", name, oid) for name, oid in repository.tags.items()]
        return 200, {"branches": branches, "converts": [], "tags": tags}, {}

    def _tree(self, id: str, rev: str, body: bytes, path: str = "") -> Answer:
        commit = self._at(id, rev)
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() in ("true", "1")
        prefix = f"{path}/" if path else ""
        entries, folders = [], set()
        for name, blob in sorted(commit.tree.items()):
            if not name.startswith(prefix):
                continue
            inner = name.removeprefix(prefix).split("/")
            folders |= {prefix + "/".join(inner[:depth]) for depth in range(1, len(inner))}
            if recursive or len(inner) == 1:
                entries.append(self._entry(name, blob, commit))
        shown = [one for one in folders if recursive or "/" not in one.removeprefix(prefix)]
        if prefix and not entries and not shown:
            raise RefusalError(404, "EntryNotFound", f"{path} does not exist")
        return 200, [*map(_folder, sorted(shown)), *entries], {}

    def _paths_info(self, id: str, rev: str, body: bytes) -> Answer:
        commit = self._at(id, rev)
        if self.headers.get("Content-Type", "").startswith("application/json"):
            paths = json.loads(body)["paths"]
        else:
            paths = parse_qs(body.decode())["paths"]
        entries = [self._entry(path, commit.tree[path], commit) for path in paths if path in commit.tree]
        folders = [path for path in paths if any(name.startswith(f"{path}/") for name in commit.tree)]
        return 200, [*map(_folder, folders), *entries], {}

    def _entry(self, path: str, blob: Blob, commit: Commit) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "oid": blob.oid, "size": len(blob.content)}
        entry["lastCommit"] = {"id": commit.oid, "title": commit.title, "date": EPOCH}
        if blob.lfs:
            entry["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": len(blob.pointer)}
            if file := self.server.hub.store.by_sha256.get(blob.sha256):
                entry["xetHash"] = file
        return entry

    def _preupload(self, id: str, rev: str, body: bytes) -> Answer:
        tree, files = self._at(id, rev).tree, []
        for file in json.loads(body)["files"]:
            path, oid = file["path"], tree[file["path"]].etag if file["path"] in tree else None
            large = path.endswith((".parquet", ".png")) or file["size"] > 10_000_000
            mode = "lfs" if large else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": files}, {}

    def _lfs_batch(self, id: str, body: bytes) -> Answer:
        hub = self.server.hub
        wanted = json.loads(body)
        objects, multipart = [], False
        for one in wanted["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            place = f"{hub.url}/lfs/{one['oid']}"
            if one["oid"] not in hub.objects:
                upload: dict[str, Any] = {"href": f"{place}?signature=secret"}
                if hub.part_bytes and one["size"] > hub.part_bytes and "multipart" in wanted["transfers"]:
                    multipart = True
                    hub.parts[one["oid"]] = {}
                    numbers = range(1, -(-one["size"] // hub.part_bytes) + 1)
                    urls = {f"{number:05}": f"{place}/{number}?signature=secret" for number in numbers}
                    upload = {"href": f"{place}/complete", "header": {"chunk_size": str(hub.part_bytes), **urls}}
                entry["actions"] = {"upload": upload}
            objects.append(entry)
        answer = {"transfer": "multipart" if multipart else "basic", "objects": objects}
        return 200, answer, {"Content-Type": "application/vnd.git-lfs+json"}

    def _put(self, oid: str, body: bytes) -> Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            raise RefusalError(400, message="the content is not that of the oid")
        self.server.hub.objects[oid] = body
        return 200, b"", {}

    def _part(self, oid: str, number: str, body: bytes) -> Answer:
        self.server.hub.parts[oid][int(number)] = body
        return 200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}

    def _complete(self, oid: str, body: bytes) -> Answer:
        hub = self.server.hub
        parts = dict(sorted(hub.parts[oid].items()))
        told = [(one["partNumber"], one["etag"].strip('"')) for one in json.loads(body)["parts"]]
        if told != [(number, hashlib.md5(part).hexdigest()) for number, part in parts.items()]:
            raise RefusalError(400, message="the parts are not those that were sent")
        return self._put(oid, b"".join(parts.values()))

    def _commit(self, id: str, rev: str, body: bytes) -> Answer:
        repository = self._repository(id)
        header, *operations = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit", repository.head) != repository.head:
            raise RefusalError(412, message="A commit has happened since. Please refresh and try again.")
        tree = dict(repository.commits[repository.head].tree)
        for operation in operations:
            value = operation["value"]
            path = value["path"]
            if operation["key"] == "file":
                tree[path] = Blob(base64.b64decode(value["content"]), False)
            elif operation["key"] == "lfsFile":
                content = self.server.hub.objects.get(value["oid"])
                if content is None or len(content) != value["size"]:
                    raise RefusalError(400, message=f"Your push was rejected: LFS object {value['oid']} is missing")
                tree[path] = Blob(content, True)
            elif tree.pop(path, None) is None:
                raise RefusalError(404, "EntryNotFound", "A file with this name doesn't exist")
        commit = repository.commit(header["value"]["summary"], tree)
        url = f"{self.server.hub.url}/datasets/{id}/commit/{commit.oid}"
        return 200, {"success": True, "commitOid": commit.oid, "commitUrl": url, "hookOutput": ""}, {}

    def _tag(self, id: str, rev: str, body: bytes) -> Answer:
        repository = self._repository(id)
        name = json.loads(body)["tag"]
        if name in repository.tags:
            raise RefusalError(409, message=f"Tag {name} already exists")
        repository.tags[name] = self._at(id, rev).oid
        return 200, {}, {}

    def _resolve(self, id: str, rev: str, path: str, body: bytes) -> Answer:
        commit = self._at(id, rev)
        if (blob := commit.tree.get(path)) is None:
            raise RefusalError(404, "EntryNotFound", f"{path} does not exist")
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"'}
        if blob.lfs and (file := self.server.hub.store.by_sha256.get(blob.sha256)):
            token = f"{self.server.hub.url}/api/datasets/{id}/xet-read-token/{commit.oid}"
            headers |= {"X-Xet-Hash": file, "Link": f'<{token}>; rel="xet-auth"'}
        return self._ranged(blob.content, headers)

    def _ranged(self, content: bytes, headers: dict[str, str]) -> Answer:
        headers["Accept-Ranges"] = "bytes"
        if (asked := self._range(len(content))) is None:
            return 200, content, headers
        start, end = asked
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        return 206, content[start:end], headers

    def _range(self, total: int) -> tuple[int, int] | None:
        """The bytes asked for, the end excluded; None if all are."""
        if (found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is None:
            return None
        if int(found[1]) >= total:
            raise RefusalError(416, message="there is nothing from there on")
        return int(found[1]), min(int(found[2] or total - 1) + 1, total)

    # Xet

    def _xet_token(self, id: str, rev: str, body: bytes) -> Answer:
        hub = self.server.hub
        url, expires = f"{hub.url}/cas", int(time.time()) + 3_600
        headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": str(expires)}
        return 200, {"casUrl": url, "accessToken": "xet", "exp": expires}, headers

    _xet_read_token = _xet_token

    def _xorb(self, hash: str, body: bytes) -> Answer:
        return 200, {"was_inserted": self.server.hub.store.add_xorb(hash, body)}, {}

    def _shard(self, body: bytes) -> Answer:
        hub = self.server.hub
        hub.objects |= hub.store.add_shard(body)
        return 200, {"result": 1}, {}

    def _reconstruction(self, hash: str, body: bytes) -> Answer:
        store = self.server.hub.store
        if hash not in store.files:
            raise RefusalError(404, message="no such file")
        asked = self._range(store.size(hash))
        return 200, store.reconstruction(hash, asked, f"{self.server.hub.url}/xorbs"), {}

    def _xorb_data(self, hash: str, body: bytes) -> Answer:
        return self._ranged(self.server.hub.store.xorbs[hash].packed, {})


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
