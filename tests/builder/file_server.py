"""A file server on the loopback interface that misbehaves as it is told."""

import gzip
import http.server
import random
import threading
import time

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
