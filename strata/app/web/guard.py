"""What stands before every request: the Host it was sent to, the page it comes from, its size, a token where
the server is bound beyond this machine, and headers that keep a browser from running anything else.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass
from http.cookies import SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_BODY = 256 << 10  # bytes of a request
LONGEST_ADDRESS = 16 << 10  # bytes of a path with its query
COOKIE = "strata_token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host in LOOPBACK:
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Door:
    """Who may come in: the names the server answers to, with its port, and the token where one is needed."""

    hosts: tuple[str, ...]
    port: int
    token: str = ""

    def known_host(self, header: str) -> bool:
        """Whether a Host header names this server: any other name is one that somebody pointed here.

        >>> door = Door(hosts=LOOPBACK, port=8000)
        >>> [door.known_host(h) for h in ("localhost:8000", "evil.example:8000", "localhost:1")]
        [True, False, False]
        """
        try:
            parts = urlsplit(f"//{header}")
            name, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if parts.username is not None or parts.path or parts.query:
            return False
        ports = (None, self.port) if self.port in (80, 443) else (self.port,)
        return name in {h.strip("[]") for h in self.hosts} and port in ports

    def known_origin(self, header: str) -> bool:
        """Whether an Origin header is this server's own page.

        >>> door = Door(hosts=LOOPBACK, port=8000)
        >>> [door.known_origin(o) for o in ("http://localhost:8000", "null", "http://localhost:3000")]
        [True, False, False]
        """
        scheme, _, rest = header.partition("://")
        return scheme in ("http", "https") and self.known_host(rest)

    def known_token(self, headers: dict[str, str], query: str) -> bool:
        """Whether a request carries the token: as a bearer, in the cookie, or in the first address."""
        if not self.token:
            return True
        cookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except Exception:  # a cookie that cannot be read is none
            cookie = SimpleCookie()
        said = [headers.get("authorization", "").removeprefix("Bearer "), *parse_qs(query).get("token", [])]
        said += [cookie[COOKIE].value] if COOKIE in cookie else []
        return any(hmac.compare_digest(word.encode(), self.token.encode()) for word in said)


class Guard:
    """The door as ASGI middleware."""

    def __init__(self, app: Any, door: Door) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse what may not come in; else pass it on, with headers on the answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        told = self.refusal(scope, headers, query)
        if told:
            await refuse(send, *told)
            return
        size, begun = 0, False

        async def limited() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MOST_BODY:
                raise TooLarge
            return message

        async def dressed(message: Any) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                extra = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                if self.door.token and parse_qs(query).get("token"):
                    cookie = f"{COOKIE}={self.door.token}; HttpOnly; SameSite=Strict; Path=/"
                    extra.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        try:
            await self.app(scope, limited, dressed)
        except TooLarge:
            await refuse(send, 413, f"a request has at most {MOST_BODY >> 10} KiB")
        except asyncio.CancelledError:  # the server ends, and does not wait for long answers
            if not begun:
                await refuse(send, 503, "the server is ending")

    def refusal(self, scope: Any, headers: dict[str, str], query: str) -> tuple[int, str] | None:
        """Status and line of a request that may not come in; None of one that may."""
        if len(scope.get("raw_path", b"")) + len(query) > LONGEST_ADDRESS:
            return 414, f"an address has at most {LONGEST_ADDRESS >> 10} KiB"
        if not self.door.known_host(headers.get("host", "")):
            return 421, "this server answers to its own name and port only"
        safe = scope["method"] in ("GET", "HEAD")
        origin = headers.get("origin")
        if origin is not None and not self.door.known_origin(origin):
            return 403, "requests of other sites are refused"
        site = headers.get("sec-fetch-site", "same-origin")
        going_there = safe and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not going_there:
            return 403, "requests of other sites are refused"
        if not self.door.known_token(headers, query):
            return 401, "this server needs its token: open the address it printed when it started"
        try:
            long = int(headers.get("content-length", "0")) > MOST_BODY
        except ValueError:
            return 400, "content-length is no number"
        if long:
            return 413, f"a request has at most {MOST_BODY >> 10} KiB"
        kind = headers.get("content-type", "application/json").split(";")[0].strip()
        if not safe and kind != "application/json":
            return 415, "requests are JSON"
        return None


class TooLarge(Exception):
    """A body that is longer than it said, or than is allowed."""


async def refuse(send: Any, status: int, said: str) -> None:
    """Answer with one line as JSON."""
    body = json.dumps({"error": said}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(k.encode(), v.encode()) for k, v in HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
