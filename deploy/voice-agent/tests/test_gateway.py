"""Fetching from a gateway that is not what it should be. Needs aiohttp, as the agent does."""

import asyncio
import hashlib
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import aiohttp
    from aiohttp import web
except ImportError as missing:
    raise unittest.SkipTest("aiohttp is not installed; `make test-voice-agent` installs it") from missing

from gateway import CONTEXT_MAX, Gateway, Refused  # noqa: E402

CONTEXT = "/agent/v1/sessions/one/context"


class TestGateway(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.asked, self.body, self.version, self.status = [], b"{}", 1, 200
        # Calls that are answered with 429 first.
        self.limited = 0
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.base = "http://127.0.0.1:%d" % self.runner.addresses[0][1]
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        gateway = {"contextUrl": self.base + CONTEXT, "eventsUrl": self.base + "/events", "token": "secret", "heartbeatSeconds": 0.01}
        job = {"gateway": gateway}
        self.gateway = Gateway(job, self.http)

    async def asyncTearDown(self):
        await self.http.close()
        await self.runner.cleanup()

    async def answer(self, request):
        self.asked.append((request.path, request.headers.get("Authorization")))
        if self.limited:
            self.limited -= 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        if self.status in (302, 307):
            return web.Response(status=self.status, headers={"Location": self.base + "/stolen"})
        return web.Response(body=self.body, status=self.status, headers={"X-Context-Version": str(self.version)})

    def announced(self, body, version=1, path=CONTEXT):
        digest = hashlib.sha256(body).hexdigest()
        return {"id": "c", "version": version, "url": self.base + path, "sha256": digest, "bytes": len(body)}

    async def test_the_announced_context_arrives(self):
        self.body = b'{"a":1}'
        self.assertEqual(await self.gateway.context(self.announced(self.body)), (self.body, 1))
        self.assertEqual(self.asked, [(CONTEXT, "Bearer secret")])

    async def test_no_other_address_gets_the_credential(self):
        for path in ("/stolen", CONTEXT + "/../../stolen", "/agent/v1/sessions/two/context"):
            with self.assertRaises(Refused):
                await self.gateway.context(self.announced(b"{}", path=path))
        with self.assertRaises(Refused):
            await self.gateway.text({**self.announced(b"x"), "url": "http://127.0.0.1:1/texts/1"})
        self.assertEqual(self.asked, [])

    async def test_what_was_refused_for_coming_too_often_comes_again(self):
        for call in (lambda: self.gateway.report({"type": "ready"}), lambda: self.gateway.context(self.announced(self.body))):
            self.asked, self.status, self.limited = [], 200, 2
            await call()
            self.assertEqual(len(self.asked), 3)

    async def test_redirects_are_not_followed(self):
        for self.status in (302, 307):
            with self.assertRaises(Refused):
                await self.gateway.context(self.announced(b"{}"))
            await self.gateway.report({"type": "ready"}, attempts=1)
        self.assertNotIn("/stolen", [path for path, _ in self.asked])

    async def test_more_than_was_announced_is_not_read(self):
        self.body = b"x" * 3_000_000
        with self.assertRaisesRegex(Refused, "longer"):
            await self.gateway.context(self.announced(b"{}"))
        self.version = 9  # newer than announced: at most the largest context
        with self.assertRaisesRegex(Refused, "longer"):
            await self.gateway.context(self.announced(b"{}"))
        for length in (CONTEXT_MAX + 1, -1, True, "9", None):
            with self.assertRaisesRegex(Refused, "bounds"):
                await self.gateway.context({**self.announced(b"{}"), "bytes": length})

    async def test_another_body_is_refused_and_a_newer_context_is_not(self):
        self.body = b'{"b":2}'
        with self.assertRaisesRegex(Refused, "not what was announced"):
            await self.gateway.context(self.announced(b'{"a":1}'))
        self.version = 2
        self.assertEqual(await self.gateway.context(self.announced(b'{"a":1}')), (self.body, 2))

    async def test_a_text_of_escaped_characters_arrives_whole(self):
        text = "\u0001" * 8_000
        self.body = json.dumps({"id": "t", "seq": 1, "text": text}).encode()
        path = CONTEXT.replace("context", "texts/1")
        self.assertEqual(await self.gateway.text(self.announced(text.encode(), path=path)), text)

    async def until_asked(self, times):
        while len(self.asked) < times:
            await asyncio.sleep(0.01)

    async def test_heartbeats_go_on_through_an_outage_and_end_with_the_session(self):
        beating = asyncio.create_task(self.gateway.keep_alive())
        for self.status in (200, 503, 429):
            await asyncio.wait_for(self.until_asked(len(self.asked) + 3), 60)
        self.status = 401
        await asyncio.wait_for(beating, 60)
        self.assertEqual(set(self.asked), {("/events", "Bearer secret")})

    async def test_without_an_interval_there_are_none(self):
        for given in (None, 0, -1, True, "2"):
            job = {"gateway": {"eventsUrl": self.base + "/events", "token": "secret", "heartbeatSeconds": given}}
            await asyncio.wait_for(Gateway(job, self.http).keep_alive(), 60)
        self.assertEqual(self.asked, [])


if __name__ == "__main__":
    unittest.main()
