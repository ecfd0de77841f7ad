"""A model hub on loopback: the few endpoints that a download uses, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


class TinyHub:
    """Serves the files of one folder as the repository `owner/tiny`."""

    def __init__(self, folder: Path) -> None:
        self.files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self.requests: list[str] = []
        self.ranges: list[str] = []
        self.cut_after: int | None = None
        """Close the connection after so many bytes of the next large file, once."""
        self.spoil = ""
        """Serve this file with one byte changed."""
        self.error: tuple[int, str] | None = None
        """Answer everything with this status and error code."""
        self.endpoint = ""

    def etag(self, name: str) -> str:
        content = self.files[name]
        if self.is_large(name):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    @staticmethod
    def is_large(name: str) -> bool:
        return name.endswith(".safetensors")

    def tree(self) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = []
        for name, content in self.files.items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
            if self.is_large(name):
                entry["lfs"] = {"oid": self.etag(name), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return entries

    def body(self, name: str) -> bytes:
        content = bytearray(self.files[name])
        if name == self.spoil:
            content[-1] ^= 1
        return bytes(content)


@contextmanager
def serve(folder: Path) -> Iterator[TinyHub]:
    """A running hub at `hub.endpoint`."""
    hub = TinyHub(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(hub: TinyHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append(f"{self.command} {path}")
            if hub.error is not None:
                status, code = hub.error
                self._send(status, b"", {"X-Error-Code": code}, with_body)
            elif path.startswith("/api/models/owner/tiny/tree/"):
                self._send(200, json.dumps(hub.tree()).encode(), {}, with_body)
            elif path.startswith("/api/models/owner/tiny"):
                facts = {"id": "owner/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
                self._send(200, json.dumps(facts).encode(), {}, with_body)
            elif path.startswith("/owner/tiny/resolve/") and path.rpartition("/")[2] in hub.files:
                self._send_file(path.rpartition("/")[2], with_body)
            else:
                code = "EntryNotFound" if path.startswith("/owner/tiny/") else "RepoNotFound"
                self._send(404, b"", {"X-Error-Code": code}, with_body)

        def _send_file(self, name: str, with_body: bool) -> None:
            content = hub.body(name)
            headers = {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            begin = 0
            if asked := self.headers.get("Range"):
                hub.ranges.append(asked)
                begin = int(asked.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            cut, keep = hub.cut_after, len(content)
            if with_body and cut is not None and hub.is_large(name):
                hub.cut_after, keep = None, cut
            self._send(206 if begin else 200, content[begin:], headers, with_body, keep)

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], with_body: bool, keep: int = 1 << 40
        ) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body[:keep])

    return Handler
