"""The server's tools: what the model may read of the user's runs and sessions. They change nothing.

The token is for this conversation only, and ends with it. What they return goes to the model marked as data, as a session's content does:
titles and errors may be text of others that reads like an order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from person import marked

log = logging.getLogger("voice-agent")

# More than the server sends.
ANSWER_MAX = 131_072

PROBLEMS = {
    400: "That was not understood. Use an id or a ref from list_runs.",
    401: "The server takes no more calls from this conversation. Tell the person to start another one.",
    404: "There is no such run. Use list_runs for those there are.",
    429: "That was too often. Wait a minute, and talk to the person meanwhile.",
}
NO_ANSWER = "The server did not answer. Tell the person, and try again later."


class Server:
    """The server's tools as the dispatch names them, for one user."""

    def __init__(self, http: Any, tools: dict[str, Any]) -> None:
        self._http, self._base = http, tools["baseUrl"]
        self._headers = {"Authorization": f"Bearer {tools['token']}"}

    async def read(self, name: str, **query: str) -> str:
        """The answer of a tool as data, or what to tell the model instead."""
        url = f"{self._base}/{name}"
        try:
            async with self._http.get(url, params=query, headers=self._headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    log.info("the server refused %s (status %s)", name, answer.status)
                    return PROBLEMS.get(answer.status, NO_ANSWER)
                body = bytearray()
                async for piece in answer.content.iter_chunked(8_192):
                    body += piece
                    if len(body) > ANSWER_MAX:
                        return NO_ANSWER
            found = json.loads(body)
        except Exception as error:  # the library's errors, which the rules here do not need
            log.warning("the server's tool %s failed: %s", name, type(error).__name__)
            return NO_ANSWER
        return marked(found) if isinstance(found, dict) else NO_ANSWER


def functions(server: Server) -> list[Callable[..., Awaitable[str]]]:
    """The tools as functions whose names and docstrings the model reads."""

    async def list_runs(active_only: bool = False) -> str:
        """Lists the person's newest runs (plans of tasks for coding agents), with their states.

        Args:
            active_only: Only runs that have not ended.
        """
        return await server.read("runs.list", active="true" if active_only else "false")

    async def show_run(run: str) -> str:
        """Shows one run and its tasks: what each is doing, what it waits for, and why it failed.

        Args:
            run: The run's id or ref, from list_runs.
        """
        return await server.read("runs.show", run=run)

    async def list_sessions(active_only: bool = True) -> str:
        """Lists the person's coding sessions: which work, and which want a permission or an answer. Names and messages are sealed.

        Args:
            active_only: Only sessions that have not ended.
        """
        return await server.read("sessions.list", active="true" if active_only else "false")

    return [list_runs, show_run, list_sessions]
