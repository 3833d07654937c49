"""A schema registry for tests: the calls that sources and sinks make, over HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry:
    """Schemas, whose ids are their positions in `schemas`, from 1."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, object]] = []
        self.subjects: dict[str, int] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def register(self, subject: str, schema: str, language: str = "AVRO") -> int:
        new: dict[str, object] = {"schema": schema, "schemaType": language}
        if new not in self.schemas:
            self.schemas.append(new)
        self.subjects[subject] = self.schemas.index(new) + 1
        return self.subjects[subject]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = self.path.strip("/").split("/")
                found = None
                if parts[:2] == ["schemas", "ids"] and int(parts[2]) <= len(registry.schemas):
                    found = registry.schemas[int(parts[2]) - 1]
                elif parts[2:] == ["versions", "latest"] and parts[1] in registry.subjects:
                    found = registry.schemas[registry.subjects[parts[1]] - 1]
                self._send(200 if found else 404, found or {"message": "not found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                subject = self.path.strip("/").split("/")[1]
                number = registry.register(subject, body["schema"], body["schemaType"])
                self._send(200, {"id": number})

            def _send(self, status: int, answer: dict[str, object]) -> None:
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
