"""Which callers and which addresses the agent trusts. It trusts the LiveKit server and the gateway that dispatched it, and
no participant of the room: everybody in the room may call its RPC methods and send it packets."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable


class Callers:
    """Tells calls of the server from calls of participants.

    The server calls under a random UUID that belongs to no participant (PerformRpc, livekit-server 1.9.2 to 1.13). LiveKit
    replaces the identity in a participant's packet by that participant's own, and the gateway gives people names that are no
    UUIDs. Identities that were in the room once are remembered, because a call may arrive after its sender has left.
    """

    def __init__(self, human: str) -> None:
        self._human = human
        self._participants: set[str] = set()

    def joined(self, identity: str) -> None:
        self._participants.add(identity)

    def is_server(self, caller: str) -> bool:
        return caller != self._human and caller not in self._participants and is_uuid(caller)


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


class Addresses:
    """The addresses that the agent fetches: the session's `contextUrl`, and the session's texts next to it."""

    def __init__(self, context_url: str | None) -> None:
        self._context = context_url or None
        session = (context_url or "").rpartition("/")[0]
        self._text = re.compile(re.escape(session) + r"/texts/[0-9]{1,18}") if session else None

    def allows(self, url: object) -> bool:
        if not isinstance(url, str):
            return False
        return url == self._context or (self._text is not None and self._text.fullmatch(url) is not None)
