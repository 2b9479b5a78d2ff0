"""A small Hugging Face Hub on the loopback interface, for the unmodified client.

A commit is a whole tree, refs move only when a commit or a tag is complete, and every file is in git, none in LFS.
``python tests/hub_server.py`` runs one to rehearse a publication on.
"""

import base64
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

type Tree = dict[str, bytes]
type Answer = tuple[int, Any, dict[str, str]]

TOKEN = "hf_SecretOfTheWriter"
DATE = "2026-01-01T00:00:00.000Z"
ID, REV = r"(?P<id>[^/]+/[^/]+)", r"(?P<rev>[^/]+)"
ROUTES = {
    "create": ("POST", r"/api/repos/create"),
    "validate_yaml": ("POST", r"/api/validate-yaml"),
    "info": ("GET", rf"/api/datasets/{ID}(/revision/{REV})?"),
    "refs": ("GET", rf"/api/datasets/{ID}/refs"),
    "tree": ("GET", rf"/api/datasets/{ID}/tree/{REV}(/(?P<path>.+))?"),
    "paths_info": ("POST", rf"/api/datasets/{ID}/paths-info/{REV}"),
    "preupload": ("POST", rf"/api/datasets/{ID}/preupload/{REV}"),
    "commit": ("POST", rf"/api/datasets/{ID}/commit/{REV}"),
    "tag": ("POST", rf"/api/datasets/{ID}/tag/{REV}"),
    "resolve": ("GET", rf"/datasets/{ID}/resolve/{REV}/(?P<path>.+)"),
}
WRITES = {"create", "preupload", "commit", "tag"}


class RefusalError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str = "", message: str = "refused") -> None:
        self.answer = (status, {"error": message}, {"X-Error-Code": code})


@dataclass
class Repository:
    """Trees by commit id, main's head, and the tags."""

    private: bool = False
    commits: dict[str, Tree] = field(default_factory=dict)
    head: str = ""
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, tree: Tree) -> str:
        """Add a commit on main."""
        content = json.dumps([self.head, sorted((path, hashlib.sha1(data).hexdigest()) for path, data in tree.items())])
        self.head = hashlib.sha1(content.encode()).hexdigest()
        self.commits[self.head] = dict(tree)
        return self.head


class Hub:
    """The server and all that it keeps. ``refused``: an HTTP status for each step that is not to succeed."""

    def __init__(self, port: int = 0) -> None:
        self.repositories: dict[str, Repository] = {}
        self.refused: dict[str, int] = {}
        self.instead: dict[str, tuple[int, bytes]] = {}  # what a proxy answers to a step, with nothing done
        self.before: dict[str, Callable[[], object]] = {}  # called once, just before that step
        self.ignored: tuple[str, ...] = ()  # what the paths of files begin with that a .gitignore would leave out
        self.slipped_in: Tree = {}  # what somebody else commits between two parts of an upload
        self.steps: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self.server.shutdown()
        self.server.server_close()

    def at(self, id: str, rev: str) -> tuple[str, Tree]:
        """The commit of a branch, tag or commit id."""
        repository = self.repositories[id]
        oid = repository.head if rev in ("main", "refs/heads/main") else repository.tags.get(rev, rev)
        if oid not in repository.commits:
            raise RefusalError(404, "RevisionNotFound")
        return oid, repository.commits[oid]

    def create(self, body: bytes) -> Answer:
        wanted = json.loads(body)
        id = f"{wanted.get('organization') or 'org'}/{wanted['name']}"
        answer = {"url": f"{self.url}/datasets/{id}", "name": id, "id": id}
        if id in self.repositories:
            return 409, answer | {"error": "exists already"}, {}
        self.repositories[id] = Repository(private=wanted.get("visibility") == "private" or bool(wanted.get("private")))
        self.repositories[id].commit({".gitattributes": b""})
        return 200, answer, {}

    def validate_yaml(self, body: bytes) -> Answer:
        return 200, {"errors": [], "warnings": []}, {}

    def info(self, id: str, body: bytes, rev: str = "main") -> Answer:
        oid, tree = self.at(id, rev)
        facts = {"id": id, "sha": oid, "private": self.repositories[id].private, "lastModified": DATE}
        none = {"gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [], "createdAt": DATE}
        return 200, facts | none | {"siblings": [{"rfilename": path} for path in sorted(tree)]}, {}

    def refs(self, id: str, body: bytes) -> Answer:
        repository = self.repositories[id]
        branches = [{"name": "main", "ref": "refs/heads/main", "targetCommit": repository.head}]
        tags = [{"name": k, "ref": f"refs/tags/{k}", "targetCommit": oid} for k, oid in repository.tags.items()]
        return 200, {"branches": branches, "converts": [], "tags": tags}, {}

    def tree(self, id: str, rev: str, body: bytes, path: str = "", recursive: bool = False) -> Answer:
        _, tree = self.at(id, rev)
        prefix, entries = f"{path}/" if path else "", {}
        for name in sorted(tree):
            inner = name.removeprefix(prefix).split("/")
            if name.startswith(prefix):
                for depth in range(1, len(inner) if recursive else min(len(inner), 2)):
                    folder = prefix + "/".join(inner[:depth])
                    entries[folder] = {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
                if recursive or len(inner) == 1:
                    entries[name] = _entry(name, tree[name])
        if prefix and not entries:
            raise RefusalError(404, "EntryNotFound")
        return 200, list(entries.values()), {}

    def paths_info(self, id: str, rev: str, body: bytes) -> Answer:
        _, tree = self.at(id, rev)
        paths = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        folders = [path for path in paths if any(name.startswith(f"{path}/") for name in tree)]
        entries = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in folders]
        return 200, [*entries, *(_entry(path, tree[path]) for path in paths if path in tree)], {}

    def preupload(self, id: str, rev: str, body: bytes) -> Answer:
        _, tree = self.at(id, rev)
        files = []
        for file in json.loads(body)["files"]:
            oid = _etag(tree[file["path"]]) if file["path"] in tree else None
            files.append({"path": file["path"], "uploadMode": "regular", "oid": oid})
            files[-1]["shouldIgnore"] = file["path"].startswith(self.ignored)
        return 200, {"files": files}, {}

    def commit(self, id: str, rev: str, body: bytes) -> Answer:
        repository = self.repositories[id]
        header, *operations = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit", repository.head) != repository.head:
            raise RefusalError(412, message="A commit has happened since. Please refresh and try again.")
        tree = repository.commits[repository.head] | self.slipped_in
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                tree[value["path"]] = base64.b64decode(value["content"])
            else:
                del tree[value["path"]]
        oid = repository.commit(tree)
        return 200, {"success": True, "commitOid": oid, "commitUrl": f"{self.url}/datasets/{id}/commit/{oid}"}, {}

    def tag(self, id: str, rev: str, body: bytes) -> Answer:
        name, tags = json.loads(body)["tag"], self.repositories[id].tags
        if name in tags:
            raise RefusalError(409)
        tags[name] = self.at(id, rev)[0]
        return 200, {}, {}

    def resolve(self, id: str, rev: str, path: str, body: bytes) -> Answer:
        oid, tree = self.at(id, rev)
        if path not in tree:
            raise RefusalError(404, "EntryNotFound")
        return 200, tree[path], {"X-Repo-Commit": oid, "ETag": f'"{_etag(tree[path])}"', "Accept-Ranges": "bytes"}


def _etag(data: bytes) -> str:
    """Git's own id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(path: str, data: bytes) -> dict[str, Any]:
    commit = {"id": "0" * 40, "title": "", "date": DATE}
    return {"type": "file", "path": path, "oid": _etag(data), "size": len(data), "lastCommit": commit}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read :attr:`Hub.steps`."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            answer = self._answer(body)
        except RefusalError as refusal:
            answer = refusal.answer
        status, content, headers = answer
        if not isinstance(content, bytes):
            content, headers = json.dumps(content).encode(), {"Content-Type": "application/json", **headers}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and status == 200:
            start, end = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
            headers = {**headers, "Content-Range": f"bytes {start}-{end}/{len(content)}"}
            status, content = 206, content[start : end + 1]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = _serve  # noqa: N815

    def _answer(self, body: bytes) -> Answer:
        url, method = urlsplit(self.path), self.command.replace("HEAD", "GET")
        matches = (
            (step, re.fullmatch(pattern, url.path)) for step, (verb, pattern) in ROUTES.items() if verb == method
        )
        step, found = next(((step, found) for step, found in matches if found), ("", None))
        if found is None:
            raise RefusalError(404)
        self.hub.steps.append(step)
        self.hub.before.pop(step, lambda: None)()
        groups: dict[str, Any] = {key: unquote(value) for key, value in found.groupdict().items() if value}
        is_writer = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.headers.get("Authorization", f"Bearer {TOKEN}") != f"Bearer {TOKEN}" or (
            step in WRITES and not is_writer
        ):
            raise RefusalError(401, message="Invalid credentials in Authorization header")
        if step in self.hub.refused:
            raise RefusalError(self.hub.refused[step])
        if step in self.hub.instead:
            return *self.hub.instead[step], {"Content-Type": "text/html"}
        repository = self.hub.repositories.get(groups["id"]) if "id" in groups else Repository()
        if repository is None or (repository.private and not is_writer):
            raise RefusalError(404 if is_writer else 401, "RepoNotFound")
        if step == "tree":
            groups["recursive"] = parse_qs(url.query).get("recursive", [""])[0].lower() in ("true", "1")
        answer: Answer = getattr(self.hub, step)(body=body, **groups)
        return answer


if __name__ == "__main__":
    print(f"export HF_ENDPOINT={Hub(8199).url} HF_TOKEN={TOKEN} HF_HUB_DISABLE_XET=1", flush=True)
    threading.Event().wait()
