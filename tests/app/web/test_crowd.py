"""Many people at the page at once: nobody is refused, and short questions are not held up. Figures: benchmarks/page.py."""

from benchmarks.page import crowd, warmed


def test_twenty_people_are_served_without_an_error(server):
    warmed(server.port)
    seen = crowd(server.port, server.process.pid, clients=20, seconds=4.0)
    assert not seen.wrong, seen.wrong
    assert len(seen.every) > 100 and all(seen.seconds.values())
    assert seen.p(0.5, "file") < 1.0 and seen.p(0.5, "again") < 1.0  # loose: machines are shared
