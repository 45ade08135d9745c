"""Who may come in, and what a browser may do with the answer."""

import asyncio

import httpx
import pytest

from strata.app.web.guard import LOOPBACK, MOST_BODY, Door, Guard

PORT = 8765
OWN = f"http://127.0.0.1:{PORT}"


async def echo(scope, receive, send):
    """An app that reads the whole body and says how long it was."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def request(method, path="/", token="", **how):
    door = Door(hosts=LOOPBACK, port=PORT, token=token)

    async def asked():
        transport = httpx.ASGITransport(app=Guard(echo, door))
        async with httpx.AsyncClient(transport=transport, base_url=OWN) as client:
            return await client.request(method, path, **how)

    return asyncio.run(asked())


def test_the_own_page_comes_in():
    assert request("GET").status_code == 200
    assert request("POST", json={}, headers={"origin": OWN, "sec-fetch-site": "same-origin"}).text == "2"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1:80",
        "localhost",
        "127.0.0.1.evil.example:8765",
        "",
        "a@localhost:8765",
    ],
)
def test_other_names_that_point_here_are_refused(host):
    """DNS rebinding: a page of another site whose name leads to this machine."""
    answer = request("GET", headers={"host": host})
    assert answer.status_code == 421 and "error" in answer.json()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost:3000", "file://"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_requests_of_other_sites_are_refused(method, origin):
    assert request(method, headers={"origin": origin}).status_code == 403


def test_a_link_from_another_site_opens_the_page_but_nothing_is_fetched():
    went = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert request("GET", headers=went).status_code == 200
    assert request("GET", headers={**went, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert request("POST", headers=went, json={}).status_code == 403


def test_forms_are_no_json():
    """What a form of another site can send without asking first is refused by its kind."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert request("POST", content=b"{}", headers={"content-type": kind}).status_code == 415


def test_a_body_has_a_limit_told_or_not():
    assert request("POST", content=b"x" * (MOST_BODY + 1)).status_code == 413

    async def pieces():
        for _ in range(5):
            yield b"x" * (MOST_BODY // 4)

    assert request("POST", content=pieces()).status_code == 413
    assert request("GET", f"/?{'q' * 20_000}").status_code == 414


def test_a_token_is_asked_for_beyond_this_machine():
    assert request("GET", token="s3cret").status_code == 401
    assert request("GET", "/?token=wrong", token="s3cret").status_code == 401
    first = request("GET", "/?token=s3cret", token="s3cret")
    assert first.status_code == 200 and "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=Strict" in first.headers["set-cookie"]
    assert request("GET", token="s3cret", headers={"cookie": "strata_token=s3cret"}).status_code == 200
    assert request("GET", token="s3cret", headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_answers_and_refusals_carry_the_policy():
    for answer in (request("GET"), request("GET", headers={"host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe-eval" not in policy and "script-src 'self' 'unsafe-inline'" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in policy
