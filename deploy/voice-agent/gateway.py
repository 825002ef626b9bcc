"""The gateway's interface for agents: reports, and what was too large for a packet. Every call that fails is tried again,
because the gateway may be restarting."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from typing import Any

import aiohttp

from addresses import Addresses

log = logging.getLogger("voice-agent")

# The largest context and the largest text of the gateway's interface.
CONTEXT_MAX = 1_048_576
TEXT_MAX = 8_192
# Of a text's JSON: a character may be escaped with six bytes, and its id is next to it.
TEXT_ENVELOPE = 1_024


class Refused(Exception):
    """What a message asks for is not fetched, or what was fetched is not what was announced. Trying again does not help."""


class Gateway:
    def __init__(self, job: dict[str, Any], http: aiohttp.ClientSession) -> None:
        gateway = job.get("gateway", {})
        self._events = gateway.get("eventsUrl")
        self._beat_every = seconds(gateway.get("heartbeatSeconds"))
        self._addresses = Addresses(gateway.get("contextUrl"))
        self._headers = {"Authorization": f"Bearer {gateway.get('token', '')}"}
        self._http = http

    async def report(self, event: dict[str, Any], attempts: int = 8) -> None:
        if not self._events:
            return
        for attempt in range(attempts):
            try:
                async with self._http.post(
                    self._events, json=event, headers=self._headers, allow_redirects=False
                ) as answer:
                    if not is_passing(answer.status):
                        return
            except (aiohttp.ClientError, asyncio.TimeoutError):
                pass
            await asyncio.sleep(pause(attempt))
        log.warning("the gateway did not take an event of type %s", event["type"])

    async def keep_alive(self) -> None:
        """Posts heartbeats as often as the gateway wants them, until it wants none any more."""
        if not self._events or not self._beat_every:
            return
        limit = aiohttp.ClientTimeout(total=max(self._beat_every, 1.0))
        while True:
            try:
                async with self._http.post(
                    self._events, json={"type": "heartbeat"}, headers=self._headers, allow_redirects=False, timeout=limit
                ) as answer:
                    if 400 <= answer.status < 500 and answer.status != 429:
                        # The session is over, or the gateway is older and has no heartbeats.
                        return
            except (aiohttp.ClientError, asyncio.TimeoutError):
                pass
            await asyncio.sleep(self._beat_every)

    async def context(self, message: dict[str, Any]) -> tuple[bytes, int]:
        """The context that a message announces, or a newer one, and its version."""
        announced = length(message, CONTEXT_MAX)
        body, version = await self._fetch(message["url"], announced, message["version"])
        if version == message["version"]:
            check(body, message)
        return body, version

    async def text(self, message: dict[str, Any]) -> str:
        announced = length(message, TEXT_MAX)
        body, _ = await self._fetch(message["url"], 6 * announced + TEXT_ENVELOPE, 0)
        text = json.loads(body)["text"]
        check(text.encode(), message)
        return text

    async def _fetch(self, url: str, limit: int, version: int, attempts: int = 8) -> tuple[bytes, int]:
        if not self._addresses.allows(url):
            raise Refused("the address is not one of this session")
        for attempt in range(attempts):
            try:
                return await self._get(url, limit, version)
            except (aiohttp.ClientError, asyncio.TimeoutError):
                if attempt + 1 == attempts:
                    raise
                await asyncio.sleep(pause(attempt))
        raise AssertionError("unreachable")

    async def _get(self, url: str, limit: int, version: int) -> tuple[bytes, int]:
        async with self._http.get(url, headers=self._headers, allow_redirects=False) as answer:
            if is_passing(answer.status):
                answer.raise_for_status()
            if answer.status != 200:
                raise Refused(f"the gateway answered with status {answer.status}")
            stored = int(answer.headers.get("X-Context-Version", 0))
            # A context that came after the announcement was announced with another length.
            most = CONTEXT_MAX if stored > version > 0 else limit
            body = bytearray()
            async for piece in answer.content.iter_chunked(8_192):
                body += piece
                if len(body) > most:
                    raise Refused("it is longer than it was announced")
            return bytes(body), stored


def is_passing(status: int) -> bool:
    """The gateway is down, or was called too often (it asks for a second)."""
    return status >= 500 or status == 429


def pause(attempt: int) -> float:
    return min(0.2 * 2**attempt, 5)


def seconds(value: object) -> float:
    """Zero when it is no duration."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 0.0


def length(message: dict[str, Any], most: int) -> int:
    announced = message.get("bytes")
    if not isinstance(announced, int) or isinstance(announced, bool) or not 0 <= announced <= most:
        raise Refused("the announced length is out of bounds")
    return announced


def check(content: bytes, pointer: dict[str, Any]) -> None:
    if len(content) != pointer["bytes"] or hashlib.sha256(content).hexdigest() != pointer["sha256"]:
        raise Refused("what was fetched is not what was announced")
