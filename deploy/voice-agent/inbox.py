"""What the gateway sends to the agent: each text once and in order, and only newer contexts. It acknowledges at once and
works later, because the server repeats a call that takes longer than three seconds."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from typing import Any, Protocol

log = logging.getLogger("voice-agent")

# Messages that wait. The gateway sends one at a time and keeps what is refused here.
WAITING_MAX = 256
# Ids that are remembered. The gateway repeats the newest message only.
SEEN_MAX = 4_096


class Source(Protocol):
    """The gateway, as far as an inbox needs it."""

    async def text(self, message: dict[str, Any]) -> str: ...
    async def context(self, message: dict[str, Any]) -> tuple[bytes, int]: ...
    async def report(self, event: dict[str, Any], attempts: int = 8) -> None: ...


class Partner(Protocol):
    """Takes up what has arrived."""

    async def on_text(self, message_id: str, seq: int, text: str) -> None: ...
    async def on_say(self, message_id: str, text: str, interrupt: bool) -> None: ...
    async def on_context(self, version: int, body: bytes) -> None: ...


class Inbox:
    def __init__(self, source: Source, partner: Partner) -> None:
        self._source, self._partner = source, partner
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._context_version = 0
        self._work: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(WAITING_MAX)

    def take(self, kind: str, message: dict[str, Any]) -> str:
        """Gives the acknowledgement. Raises `QueueFull`: too much waits, and it has to come again."""
        duplicate = message["id"] in self._seen
        if not duplicate:
            self._work.put_nowait((kind, message))
            self._seen[message["id"]] = None
            if len(self._seen) > SEEN_MAX:
                self._seen.popitem(last=False)
        return json.dumps({"ok": True, "duplicate": duplicate})

    async def run(self) -> None:
        while True:
            kind, message = await self._work.get()
            try:
                if kind in ("text", "say"):
                    await self._text(kind, message)
                else:
                    await self._context(message)
            except Exception as error:  # one bad message must not end the conversation
                log.exception("a %s could not be taken up", kind)
                await self._source.report({"type": "error", "code": f"{kind}_failed", "message": type(error).__name__})
            finally:
                self._work.task_done()

    async def idle(self) -> None:
        """Waits until everything that was taken is worked off."""
        await self._work.join()

    async def _text(self, kind: str, message: dict[str, Any]) -> None:
        text = message.get("text")
        if text is None:
            text = await self._source.text(message)
        if kind == "say":
            await self._partner.on_say(message["id"], text, message.get("interrupt") is True)
        else:
            await self._partner.on_text(message["id"], message.get("seq", 0), text)

    async def _context(self, message: dict[str, Any]) -> None:
        version = message["version"]
        if version <= self._context_version:
            return
        if "payload" in message:
            body = json.dumps(message["payload"], separators=(",", ":"), ensure_ascii=False).encode()
        else:
            body, stored = await self._source.context(message)
            # A newer one has arrived in the meantime.
            version = max(version, stored)
        self._context_version = version
        await self._partner.on_context(version, body)
