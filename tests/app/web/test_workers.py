"""Questions beside each other: short ones are never held up, long ones can be cancelled."""

import asyncio
import time
from pathlib import Path

import pytest

from strata.app.web.workers import Workers


def run(tmp_path, story, count=2):
    async def lived():
        workers = Workers(str(tmp_path), count, "probes")
        await workers.start()
        try:
            return await story(workers)
        finally:
            await workers.stop()

    return asyncio.run(lived())


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """What one set of workers did, so that processes start once."""
    folder = tmp_path_factory.mktemp("studies")

    async def story(workers):
        told = {}
        job = workers.begin("probe.slow", {"seconds": 60})
        told["short"] = await workers.ask("probe.echo", {"said": "beside"})
        began = time.monotonic()
        told["again"] = await workers.ask("probe.echo", {"said": "beside"})
        told["cached_s"] = time.monotonic() - began
        told["fault"] = await workers.ask("probe.fault", {})
        told["mistake"] = await workers.ask("probe.predicted", {"model": "nonesuch"})
        told["outside"] = await workers.ask("probe.opened", {"path": "/etc/passwd"})
        told["written"] = await workers.ask("probe.written", {"path": "/tmp/strata-probe"})
        told["inside"] = await workers.ask("probe.written", {"path": str(folder / "mine.txt")})
        told["started"] = await workers.ask("probe.started", {})
        told["late"] = await workers.ask("probe.slow_short", {"seconds": 60}, limit=0.5)
        told["after_late"] = await workers.ask("probe.echo", {"said": "after"})
        while not job.told:
            await job.moved.wait()
        process = job.worker.process
        workers.cancel(job)
        await asyncio.wait_for(process.wait(), 5)
        told["job"] = job.summary()
        quick = workers.begin("probe.slow", {"seconds": 0.1})
        while not quick.ended:
            await quick.moved.wait()
        told["quick"] = quick.summary()
        workers.lonely = 0.4
        left, kept = (workers.begin("probe.slow", {"seconds": 5}, kept=keep) for keep in (False, True))
        await asyncio.sleep(1.5)
        told["left"], told["kept"] = left.state, kept.state
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        return run(folder, story)


def test_a_short_question_is_answered_beside_a_long_one(lived):
    assert lived["short"] == (200, b'{"said":"beside"}')
    assert lived["again"] == lived["short"] and lived["cached_s"] < 0.01


def test_a_fault_of_ours_and_a_mistake_are_one_line_each(lived):
    status, body = lived["fault"]
    assert status == 500 and b"ZeroDivisionError" in body and b"Traceback" not in body
    status, body = lived["mistake"]
    assert status == 422 and b"nonesuch" in body


def test_files_outside_the_study_folder_are_neither_read_nor_written(lived):
    for name in ("outside", "written"):
        status, body = lived[name]
        assert status == 422 and b"outside of what the page may see" in body
    assert lived["inside"][0] == 200
    assert lived["started"][0] == 422


def test_a_question_that_takes_too_long_is_stopped_and_the_next_is_answered(lived):
    assert lived["late"][0] == 504
    assert lived["after_late"][0] == 200


def test_a_job_reports_and_is_cancelled_at_once(lived):
    assert lived["job"]["state"] == "cancelled" and lived["job"]["told"]
    assert lived["job"]["seconds"] < 30


def test_a_job_whose_page_was_closed_ends_unless_it_keeps_what_it_finds(lived):
    assert (lived["left"], lived["kept"]) == ("cancelled", "running")


def test_a_job_comes_to_its_end(lived):
    assert lived["quick"]["state"] == "done" and lived["quick"]["answer"] == {"slept": 0.1}
