"""What happens in a conversation, for the gateway: one after the other, so that a transcript has the order of what was said."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

log = logging.getLogger("voice-agent")

# Reports that wait. Beyond these the newest are lost, rather than the conversation's memory.
WAITING_MAX = 256
# How long the end of a conversation waits for the last ones.
DRAIN_SECONDS = 3.0


class Taker(Protocol):
    async def report(self, event: dict[str, Any], attempts: int = 8) -> None: ...


class Reports:
    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(WAITING_MAX)
        self._working = asyncio.get_running_loop().create_task(self._work())

    def add(self, event: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("too many reports wait; one of type %s is lost", event["type"])

    async def drain(self, _: str = "") -> None:
        """Sends what waits, as far as that is quick, and ends."""
        try:
            await asyncio.wait_for(self._waiting.join(), DRAIN_SECONDS)
        except asyncio.TimeoutError:
            log.warning("%s reports did not reach the gateway", self._waiting.qsize())
        self._working.cancel()

    async def _work(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                # A state is soon out of date; what was said and what failed is not.
                await self._taker.report(event, attempts=1 if event["type"] == "state" else 4)
            finally:
                self._waiting.task_done()
