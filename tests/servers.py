"""Real servers on this machine: one that serves files by ranges and counts, and one that speaks S3."""

from __future__ import annotations

import http.server
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class FileServer:
    """A server of one folder; `ranges` False makes it one that sends whole files only."""

    root: Path
    ranges: bool = True
    failures: int = 0  # requests that it will drop from now on
    headers: dict[str, str] = field(default_factory=dict)  # that it sends besides, or in place of its own
    status: int = 0  # of its answers, without content, if not 0
    hung_up: threading.Event = field(default_factory=threading.Event)  # on an answer that was being sent
    requests: list[tuple[str, str, int]] = field(default_factory=list)  # method, range, bytes sent
    port: int = 0

    def url(self, name: str) -> str:
        """The address of a file of the folder."""
        return f"http://127.0.0.1:{self.port}/{name}"

    @property
    def sent(self) -> int:
        """Bytes of files that were sent."""
        return sum(size for _, _, size in self.requests)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FileServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        state, path = self.state, self.state.root / self.path.lstrip("/")
        if state.failures:
            state.failures -= 1
            self.close_connection = True
            return
        if state.status:
            self._head(state.status, {"Content-Length": "0"})
            return
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if state.ranges else None
        part = data[int(asked[1]) : int(asked[2]) + 1] if asked else data
        headers = {"Content-Length": str(len(part))}
        if asked:
            end = int(asked[1]) + len(part) - 1
            headers["Content-Range"] = f"bytes {asked[1]}-{end}/{len(data)}"
        if state.ranges:
            headers["Accept-Ranges"] = "bytes"
        self._head(206 if asked else 200, headers)
        state.requests.append((self.command, asked[0] if asked else "", len(part) if body else 0))
        if body:
            try:
                self.wfile.write(part)
            except OSError:  # who asked for a part does not wait for the whole
                self.close_connection = True
                state.hung_up.set()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | self.state.headers).items():
            self.send_header(name, value)
        self.end_headers()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # who asked hung up
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def file_server(root: Path, *, ranges: bool = True) -> Iterator[FileServer]:
    """A server of the files of a folder on a port of its own."""
    state = FileServer(root, ranges)
    handler = type("Handler", (_Handler,), {"state": state})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def s3_server(files: dict[str, bytes]) -> Iterator[str]:
    """A server that speaks S3 with these objects in one bucket; variables tell clients where it is."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        client = boto3.client("s3")
        client.create_bucket(Bucket="pictures")
        for name, data in files.items():
            client.put_object(Bucket="pictures", Key=name, Body=data)
        yield "s3://pictures"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()
