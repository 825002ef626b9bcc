"""Reports reach the gateway in order, are bounded, and do not hold up the end. Needs no library."""

import asyncio
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reports  # noqa: E402
from reports import WAITING_MAX, Reports  # noqa: E402


class Gateway:
    """Takes reports when the test opens it."""

    def __init__(self):
        self.taken, self.open = [], asyncio.Event()

    async def report(self, event, attempts=8):
        await self.open.wait()
        self.taken.append((event["type"], event.get("text"), attempts))


def said(number):
    return {"type": "transcript", "role": "user", "text": str(number)}


class TestReports(unittest.IsolatedAsyncioTestCase):
    async def test_what_was_said_keeps_its_order(self):
        gateway = Gateway()
        waiting = Reports(gateway)
        for number in range(20):
            waiting.add(said(number))
        waiting.add({"type": "state", "state": "listening"})
        gateway.open.set()
        await waiting.drain()
        self.assertEqual([text for _, text, _ in gateway.taken[:20]], [str(number) for number in range(20)])
        self.assertEqual([gateway.taken[0][2], gateway.taken[20]], [4, ("state", None, 1)])

    async def test_a_gateway_that_does_not_answer_costs_no_memory_and_holds_up_no_end(self):
        gateway = Gateway()
        waiting = Reports(gateway)
        with self.assertLogs("voice-agent", "WARNING"), mock.patch.object(reports, "DRAIN_SECONDS", 0.05):
            for number in range(2 * WAITING_MAX):
                waiting.add(said(number))
            await waiting.drain()
        gateway.open.set()
        await asyncio.sleep(0)
        self.assertLessEqual(len(gateway.taken), 1)


if __name__ == "__main__":
    unittest.main()
