"""Texts once and in order, contexts only upward, and a bounded queue. Needs no library."""

import asyncio
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from inbox import WAITING_MAX, Inbox  # noqa: E402


class Recorder:
    """The gateway and the partner in one."""

    def __init__(self):
        self.texts, self.contexts, self.reports, self.stored = [], [], [], (b"{}", 0)
        self.said = []

    async def text(self, message):
        return message["fetched"]

    async def context(self, message):
        return self.stored

    async def report(self, event, attempts=8):
        self.reports.append(event)

    async def on_say(self, message_id, text, interrupt):
        self.said.append((message_id, text, interrupt))

    async def on_text(self, message_id, seq, text):
        if text == "bad":
            raise ValueError("bad")
        self.texts.append((message_id, seq, text))

    async def on_context(self, version, body):
        self.contexts.append((version, body))


class TestInbox(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.recorder = Recorder()
        self.inbox = Inbox(self.recorder, self.recorder)
        self.running = asyncio.create_task(self.inbox.run())

    async def asyncTearDown(self):
        self.running.cancel()

    async def worked_off(self):
        await asyncio.wait_for(self.inbox.idle(), 60)

    async def test_a_text_counts_once_under_its_id(self):
        for seq, text in enumerate(["a", "b", "a again"], 1):
            self.inbox.take("text", {"id": "1" if text != "b" else "2", "seq": seq, "text": text})
        self.assertEqual(json.loads(self.inbox.take("text", {"id": "2", "text": "b"})), {"ok": True, "duplicate": True})
        await self.worked_off()
        self.assertEqual(self.recorder.texts, [("1", 1, "a"), ("2", 2, "b")])

    async def test_a_large_text_is_fetched_and_a_bad_one_is_reported(self):
        self.inbox.take("text", {"id": "1", "text": "bad"})
        self.inbox.take("text", {"id": "2", "seq": 2, "url": "…", "fetched": "long"})
        await self.worked_off()
        self.assertEqual(self.recorder.texts, [("2", 2, "long")])
        self.assertEqual(self.recorder.reports, [{"type": "error", "code": "text_failed", "message": "ValueError"}])

    async def test_words_to_speak_are_no_turn_of_the_person(self):
        self.inbox.take("text", {"id": "1", "seq": 1, "text": "a"})
        self.inbox.take("say", {"id": "2", "seq": 2, "text": "It is done.", "interrupt": False})
        self.inbox.take("say", {"id": "3", "seq": 3, "url": "…", "fetched": "Long.", "interrupt": True})
        self.assertTrue(json.loads(self.inbox.take("say", {"id": "2", "text": "It is done."}))["duplicate"])
        await self.worked_off()
        self.assertEqual(self.recorder.texts, [("1", 1, "a")])
        self.assertEqual(self.recorder.said, [("2", "It is done.", False), ("3", "Long.", True)])

    async def test_contexts_only_upward(self):
        self.inbox.take("context", {"id": "c2", "version": 2, "payload": {"v": 2}})
        self.inbox.take("context", {"id": "c1", "version": 1, "payload": {"v": 1}})
        await self.worked_off()
        self.recorder.stored = (b'{"v":5}', 5)
        self.inbox.take("context", {"id": "c4", "version": 4, "url": "…"})
        await self.worked_off()
        self.inbox.take("context", {"id": "c5", "version": 5, "payload": {"v": "late"}})
        await self.worked_off()
        self.assertEqual(self.recorder.contexts, [(2, b'{"v":2}'), (5, b'{"v":5}')])

    async def test_what_does_not_fit_is_refused_and_may_come_again(self):
        for number in range(WAITING_MAX):
            self.inbox.take("text", {"id": str(number), "text": "x"})
        with self.assertRaises(asyncio.QueueFull):
            self.inbox.take("text", {"id": "one more", "text": "x"})
        await self.worked_off()
        self.assertFalse(json.loads(self.inbox.take("text", {"id": "one more", "text": "x"}))["duplicate"])


if __name__ == "__main__":
    unittest.main()
