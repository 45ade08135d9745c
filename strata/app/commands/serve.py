"""`strata serve`: the page, on this machine."""

from __future__ import annotations

from pathlib import Path

from strata.app.commands.options import command, flag, option
from strata.app.terminal import put_line
from strata.base.errors import BadValue
from strata.base.shipped import extra_package


@command("serve", "Explore designs in a browser.", "strata serve, then open http://127.0.0.1:8765")
def serve_command(
    host: str = option("127.0.0.1", "ADDRESS", "address to bind to"),
    port: int = option(8765, "N", "port; 0 takes a free one", min=0, max=65535),
    studies: Path = option(Path("strata-studies"), "DIR", "the one folder it reads and writes studies in"),
    open: bool = flag("--open", "open the page in the browser"),
) -> None:
    """Explore designs in a browser: a local page that works offline. Bound to another address than this
    machine's own, it asks for a token, which is printed at the start.
    """
    import secrets
    import socket

    uvicorn = extra_package("uvicorn", "the page", "web")
    extra_package("fastapi", "the page", "web")
    from strata.app.web.guard import LOOPBACK, Door, is_loopback
    from strata.app.web.server import web_app

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP by name: only on such sockets does asyncio send the second half of a small answer at once
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except OSError as error:
        raise BadValue(f"cannot bind to {host}:{port}: {(error.strerror or str(error)).lower()}") from None
    port = bound.getsockname()[1]
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    named = () if host in ("0.0.0.0", "::") else (host,)
    own = (socket.gethostname().lower(), *_addresses()) if token and not named else named
    door = Door(hosts=tuple(dict.fromkeys((*LOOPBACK, *own))), port=port, token=token)
    shown = socket.gethostname() if token and not named else host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    put_line(f"strata serve: {address}  (studies in {studies}; Ctrl-C ends it)")
    if open:
        import webbrowser

        webbrowser.open(address)
    app = web_app(studies, door)
    settings = {
        "log_level": "warning",
        "server_header": False,
        "date_header": False,
        "limit_concurrency": 500,
        "timeout_graceful_shutdown": 1,  # pages that wait for news of a job hold nothing up
    }
    server = uvicorn.Server(uvicorn.Config(app, timeout_keep_alive=20, **settings))
    server.run(sockets=[bound])


def _addresses() -> list[str]:
    """This machine's own addresses, as far as its name tells them."""
    import socket

    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        return []
