"""Attempts from outside, on the real server: other sites, paths, scripts, bodies that are too long or too slow, and
more work than it takes.
"""

import json
import socket
import time

import httpx
import pytest

from benchmarks.served import serving
from strata.app.web.guard import MOST_BODY
from strata.app.web.workers import MOST_JOBS


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=30) as opened:
        yield opened


def raw(server, request, wait=5.0):
    """The answer to bytes as they are, as no well-behaved client would send them."""
    with socket.create_connection(("127.0.0.1", server.port), wait) as line:
        line.sendall(request)
        line.settimeout(wait)
        found = b""
        try:
            while piece := line.recv(65536):
                found += piece
        except TimeoutError:
            pass
    return found


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/%2e%2e/web/guard.py",
        "/static/....//server.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/pages/../../fence.py",
        "/static/strata.css%00.js",
        "/static/..\\server.py",
        "/static/",
        "/static",
        "/..%2f..%2fetc/passwd",
        "/api/../static/../server.py",
    ],
)
def test_no_path_leads_out_of_the_pages_files(server, path):
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    status, _, rest = raw(server, head.encode()).partition(b"\r\n")
    assert status.split()[1] in (b"404", b"400", b"307"), status
    assert b"import" not in rest and b"root:" not in rest and b"Traceback" not in rest


def test_other_sites_are_refused_by_the_server_itself(server, client):
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"origin": f"http://localhost:{server.port + 1}"},
    ):
        for method, path in (
            ("POST", "/api/predict"),
            ("GET", "/api/catalogue"),
            ("DELETE", f"/api/jobs/{'0' * 16}"),
        ):
            answer = client.request(method, path, headers=headers)
            assert answer.status_code == 403 and list(answer.json()) == ["error"], (method, headers)
    answer = client.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
    answer = client.get("/api/catalogue")
    assert "access-control-allow-origin" not in answer.headers
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    assert client.request("OPTIONS", "/api/predict", headers=preflight).status_code == 403


OUTSIDE = ["../../etc/passwd", "/etc/passwd", "a/../b", "a\x00b"]


def test_names_are_no_paths(client):
    """In every field that takes a name, of every question: refused at the door, in one line."""
    schema = client.get("/api/openapi.json").json()
    asked = 0
    for path, ways in schema["paths"].items():
        content = ways.get("post", {}).get("requestBody", {}).get("content", {})
        if not content:
            continue
        part = content["application/json"]["schema"]["$ref"].rsplit("/", 1)[-1]
        for key, form in schema["components"]["schemas"][part].get("properties", {}).items():
            if "pattern" not in form:
                continue
            for name in OUTSIDE:
                answer = client.post(path, json={key: name})
                assert answer.status_code == 422 and "\n" not in answer.json()["error"], (path, key, name)
                asked += 1
    assert asked >= 10


def test_nothing_is_written_outside_of_the_study_folder(server, client):
    """Studies are called by names; one that leads elsewhere is refused before any work begins."""
    if client.post("/api/search/run", json={}).status_code == 404:
        pytest.skip("this server has no searches")
    outside = set(server.studies.parent.iterdir())
    for name in ("../out", "a/b", "..", ".", "/tmp/x", "a\\..\\b", ".hidden", "x" * 200):
        assert client.post("/api/search/run", json={"study": name}).status_code == 422, name
        assert client.post("/api/search/open", json={"study": name}).status_code == 422, name
    assert set(server.studies.parent.iterdir()) == outside


def test_bodies_that_are_no_question(server, client):
    own = {"content-type": "application/json"}
    for body in (
        b"",
        b"[]",
        b"nul",
        b'{"model": NaN}',
        b"\xff\xfe",
        b'{"a":' * 5000,
        b"[" * 100_000,
        b'"' + b"x" * 1000,
    ):
        answer = client.post("/api/predict", content=body, headers=own)
        assert answer.status_code in (400, 422) and list(answer.json()) == ["error"], body[:20]
    assert client.post("/api/predict", content=b"x" * (MOST_BODY + 1), headers=own).status_code == 413
    big = {"set": {f"chip.a{i}": "1" for i in range(8000)}}
    assert client.post("/api/predict", json=big).status_code == 422
    head = (
        f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    )
    for extra in ("Content-Length: -5", "Content-Length: x", f"Content-Length: {1 << 40}"):
        answer = raw(server, f"{head}{extra}\r\nConnection: close\r\n\r\n".encode(), 3.0)
        assert answer.split()[1] in (b"400", b"413"), extra


def test_slow_bodies_hold_nobody_up(server, client):
    """Forty who send a byte and wait: others are answered meanwhile."""
    head = (
        f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    )
    lines = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(40)]
    try:
        for line in lines:
            line.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        assert client.get("/api/catalogue").status_code == 200
        assert client.post("/api/predict", json={}).status_code == 200
    finally:
        for line in lines:
            line.close()


def test_more_jobs_than_it_takes_are_refused_and_all_can_be_cancelled(client):
    """The rest of the server answers while they wait; once they are cancelled, new ones are taken."""
    path = next(
        p
        for p in ("/api/search/run", "/api/mapping-search")
        if "post" in client.get("/api/openapi.json").json()["paths"].get(p, {})
    )
    asked = [
        client.post(path, json={"study": f"many-{i}"} if "search/run" in path else {})
        for i in range(10 * MOST_JOBS + 3)
    ]
    taken = [a.json()["job"] for a in asked if a.status_code == 202]
    try:
        assert {a.status_code for a in asked} == {202, 429} and len(taken) <= 10 * MOST_JOBS
        began = time.monotonic()
        assert client.get("/api/catalogue").status_code == 200 and time.monotonic() - began < 5
    finally:
        states = [client.delete(f"/api/jobs/{key}").json()["state"] for key in taken]
    assert set(states) <= {"cancelled", "done", "failed"}
    again = client.post(path, json={"study": "many-again"} if "search/run" in path else {})
    assert again.status_code == 202
    assert client.delete(f"/api/jobs/{again.json()['job']}").json()["state"] in (
        "cancelled",
        "done",
        "failed",
    )


def test_a_job_of_another_key_cannot_be_guessed_or_seen(client):
    for key in ("0" * 16, "f" * 16):
        assert client.get(f"/api/jobs/{key}").status_code == 404
    for key in ("..%2fcatalogue", "x", "0" * 17, "'; drop table jobs"):
        assert client.get(f"/api/jobs/{key}").status_code in (404, 422)


def test_faults_tell_nothing_of_the_machine(client):
    for body in (
        {"model": "nonesuch"},
        {"set": {"chip.nothing": "1"}},
        {"plan": "tp=99x"},
        {"engine": "none"},
    ):
        answer = client.post("/api/predict", json=body)
        said = answer.json()["error"]
        assert answer.status_code == 422 and "Traceback" not in said and "site-packages" not in said
        assert "/home" not in said and "/tmp" not in said and "/work" not in said


def test_bound_elsewhere_it_asks_for_its_token(tmp_path):
    """On all addresses of this machine: nothing without the token, everything with it, and no other name."""
    with (
        serving(tmp_path / "studies", "--host", "0.0.0.0") as server,
        httpx.Client(base_url=server.url) as client,
    ):
        assert len(server.token) >= 32
        for path in ("/", "/api/catalogue", "/static/strata.css", "/api/openapi.json"):
            assert client.get(path).status_code == 401, path
        assert client.get("/", params={"token": server.token[:-1]}).status_code == 401
        first = client.get("/", params={"token": server.token})
        assert first.status_code == 200 and "HttpOnly" in first.headers["set-cookie"]
        assert client.get("/static/strata.css").status_code == 200  # by the cookie
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421
        bearer = {"authorization": f"Bearer {server.token}"}
        assert httpx.get(f"{server.url}/static/strata.css", headers=bearer).status_code == 200


def test_scripts_in_every_text_come_back_as_text(client):
    """As JSON that no browser takes for a page; that none runs in the page itself is tested in the browser."""
    script = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    for key in ("model", "system", "plan", "engine"):
        answer = client.post("/api/predict", json={key: script})
        assert answer.status_code == 422 and answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        json.loads(answer.text)
    answer = client.get(f"/static/{script}")
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/json"
