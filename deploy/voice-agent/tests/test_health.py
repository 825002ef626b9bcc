"""The limit of conversations, and the health of a worker that takes none. Needs no library."""

import asyncio
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from health import FAILURES_MAX, FULL, STUCK_SECONDS, Jobs  # noqa: E402


def worker(most, load_max, processors):
    jobs = Jobs(most, load_max)
    jobs._processors = SimpleNamespace(load=lambda: processors)
    return jobs


def loaded(jobs, running):
    return jobs.load(SimpleNamespace(active_jobs=[None] * running))


class Request:
    def __init__(self, name, outcome, metadata=""):
        self.id, self.outcome = name, outcome
        self.job, self.identity = SimpleNamespace(metadata=metadata), None

    async def accept(self, identity=None):
        self.identity = identity
        await self.outcome()


async def works():
    pass


async def fails():
    raise RuntimeError("the assignment timed out")


class TestJobs(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.now = 0.0
        self.jobs = Jobs(8, 0.7, clock=lambda: self.now)

    def test_livekit_gives_every_conversation_that_is_allowed_and_no_more(self):
        for load_max in (0.3, 0.7, 0.9, 1.0):
            for most in (1, 3, 4, 8, 100):
                jobs = worker(most, load_max, processors=0.0)
                loads = [loaded(jobs, running) for running in range(most + 1)]
                # LiveKit's rule: pkg/service/agentservice.go compares with `target_load`.
                self.assertTrue(all(load < 0.7 for load in loads[:-1]), (load_max, most, loads))
                self.assertGreaterEqual(loads[-1], 0.7)

    def test_processors_above_their_share_refuse_a_conversation(self):
        for processors, load_max, is_full in [(0.69, 0.7, False), (0.7, 0.7, True), (0.85, 0.9, False), (0.91, 0.9, True), (0.31, 0.3, True)]:
            self.assertEqual(loaded(worker(8, load_max, processors), 1) >= FULL, is_full, (processors, load_max))

    def test_where_all_of_the_processors_are_allowed_only_conversations_count(self):
        jobs = worker(4, 1.0, processors=1.0)
        self.assertEqual([loaded(jobs, running) for running in (0, 2, 4)], [0.0, FULL / 2, 1.0])

    async def test_conversations_load_and_failures_are_metrics(self):
        jobs = Jobs(4, 1.0)
        loaded(jobs, 2)
        await jobs.take(Request("a", works))
        with self.assertRaises(RuntimeError):
            await jobs.take(Request("b", fails))
        written = jobs.metrics(is_healthy=True).splitlines()
        for line in ("jobs 2", "jobs_max 4", "load 0.35", "load_max 0.7", "healthy 1", "jobs_started_total 1", "jobs_failed_total 1"):
            self.assertIn(f"ensemble_voice_agent_{line}", written)
        self.assertIn("ensemble_voice_agent_healthy 0", jobs.metrics(is_healthy=False).splitlines())

    async def test_a_worker_whose_jobs_do_not_start_is_not_healthy(self):
        never = asyncio.Event()
        stuck = asyncio.create_task(self.jobs.take(Request("a", never.wait)))
        await asyncio.sleep(0)
        self.now = STUCK_SECONDS - 1
        self.assertIsNone(self.jobs.trouble())
        self.now = STUCK_SECONDS + 1
        self.assertEqual(self.jobs.trouble(), "1 accepted jobs do not start")
        never.set()
        await stuck
        self.assertIsNone(self.jobs.trouble())

    async def test_failures_in_a_row_make_it_unhealthy_until_one_job_starts(self):
        for number in range(FAILURES_MAX):
            self.assertIsNone(self.jobs.trouble())
            with self.assertRaises(RuntimeError):
                await self.jobs.take(Request(str(number), fails))
        self.assertIn("in a row", self.jobs.trouble())
        await self.jobs.take(Request("b", works))
        self.assertIsNone(self.jobs.trouble())

    async def test_the_agent_joins_under_the_name_that_the_gateway_gave_it(self):
        for metadata, identity in [('{"agentIdentity": "agent_1"}', "agent_1"), ("{}", None), ("", None), ("[", None), ('{"agentIdentity": 1}', None)]:
            request = Request("c", works, metadata)
            await self.jobs.take(request)
            self.assertEqual(request.identity, identity)


if __name__ == "__main__":
    unittest.main()
