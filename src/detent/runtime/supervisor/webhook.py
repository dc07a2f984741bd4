"""Posts that are topics: a small ASGI application to be mounted, or served by itself."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from detent.errors import BadOption, SourceClosed
from detent.runtime.supervisor.topics import Topics

BODY_BYTES_MAX: Final = 1_048_576
_TOPIC_CHARS_MAX: Final = 1_000


class Webhook:
    """`POST /some/path` is the topic `webhook/some/path`; `topics` is the source to listen to.

    Answered with 202 when there was room for it, which may take as long as topics are handled; with
    503 once `topics` is closed. The body is read and thrown away. Topics steer processes: without a
    `token`, whoever reaches the address does.
    """

    def __init__(self, token: str | None = None) -> None:
        self.topics = Topics()
        if token == "":
            # A variable that is not set must not let everybody in, nor nobody.
            raise BadOption("The token of a webhook is empty: name one, or none", option="token")
        self._wanted = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Whoever mounts it elsewhere leaves the rest of the path to us."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not self._is_let_in(request):
            refused = _refused(401, "unauthorized", "The bearer token is missing, or another one")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        if request.method != "POST":
            refused = _refused(405, "method_not_allowed", "A topic is sent with POST")
            refused.headers["Allow"] = "POST"
            return refused
        if await _is_too_large(request):
            return _refused(413, "payload_too_large", f"At most {BODY_BYTES_MAX} bytes are taken")
        path = _path_of(request)
        if not path or len(path) > _TOPIC_CHARS_MAX or not path.isprintable():
            return _refused(400, "bad_route", "The path is the topic: a line of text, not too long")
        return await self._put(f"webhook/{path}")

    async def _put(self, topic: str) -> Response:
        try:
            await self.topics.put(topic)
        except SourceClosed as error:
            return _refused(503, error.code, error.message)
        return Response(status_code=202)

    def _is_let_in(self, request: Request) -> bool:
        if self._wanted is None:
            return True
        given = request.headers.get("authorization", "").encode("latin-1")
        return hmac.compare_digest(given, self._wanted)


def _path_of(request: Request) -> str:
    """What is below the place where it is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")).strip("/")


async def _is_too_large(request: Request) -> bool:
    """Counted, not believed: a body need not say its length."""
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > BODY_BYTES_MAX:
            return True
    return False


def _refused(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)
