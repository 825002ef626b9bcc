"""How many conversations this worker takes, and whether it takes them.

A worker can stay registered and answer no job at all; a health check that asks for the registration only does not see it.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger("voice-agent")

# A job that was accepted and is not running after this is stuck. LiveKit assigns it within 7.5 s, and a process starts
# within 10 s.
STUCK_SECONDS = 30.0
# This many jobs in a row that were not started make the worker unhealthy.
FAILURES_MAX = 5
# Samples of the processors' load, half a second each, that are averaged.
SAMPLES = 5
# LiveKit gives no conversation to a worker with this load or more (its `target_load`, pkg/agent/config.go), so this means full.
FULL = 0.7


class Jobs:
    """`most` conversations, and none above the share `load_max` of the processors."""

    def __init__(self, most: int, load_max: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._load_max, self._clock = most, load_max, clock
        self._begun: dict[str, float] = {}
        self._running = 0
        self._load = 0.0
        self._started = self._failed = 0
        # In a row.
        self._failures = 0
        self._processors: Processors | None = None

    def load(self, server: Any) -> float:
        """The load for LiveKit: below `FULL` as long as one more is allowed, and 1 from the last one on."""
        self._running = len(server.active_jobs)
        used = self._used()
        self._load = FULL * used if used < 1 else 1.0
        return self._load

    def _used(self) -> float:
        """The share that is used of what is allowed. From 1 on it takes no more."""
        conversations = self._running / self._most
        if self._load_max >= 1:
            # All of the processors are allowed.
            return conversations
        if self._processors is None:
            self._processors = Processors()
        return max(self._processors.load() / self._load_max, conversations)

    def metrics(self, is_healthy: bool) -> str:
        """What autoscalers, alerts and dashboards read (Prometheus' text format)."""
        values = (
            ("voice_agent_jobs", "gauge", "Conversations.", self._running),
            ("voice_agent_jobs_max", "gauge", "Conversations that it takes at once.", self._most),
            ("voice_agent_load", "gauge", "The load that LiveKit receives.", self._load),
            ("voice_agent_load_max", "gauge", "The load from which LiveKit gives it no conversation.", FULL),
            ("voice_agent_healthy", "gauge", "1: it is registered and takes conversations.", int(is_healthy)),
            ("voice_agent_jobs_started_total", "counter", "Conversations that it took.", self._started),
            ("voice_agent_jobs_failed_total", "counter", "Conversations that it took and that did not start.", self._failed),
        )
        lines = ("# HELP ensemble_{0} {2}\n# TYPE ensemble_{0} {1}\nensemble_{0} {3}\n".format(*one) for one in values)
        return "".join(lines)

    async def take(self, request: Any) -> None:
        """Accepts a job, which returns when the job's process has it."""
        self._begun[request.id] = self._clock()
        try:
            identity = identity_of(request.job.metadata)
            await (request.accept(identity=identity) if identity else request.accept())
            self._failures = 0
            self._started += 1
        except Exception:
            self._failures += 1
            self._failed += 1
            raise
        finally:
            self._begun.pop(request.id, None)

    def trouble(self) -> str | None:
        """Why the worker is not healthy."""
        now = self._clock()
        stuck = sum(now - begun > STUCK_SECONDS for begun in self._begun.values())
        if stuck:
            return f"{stuck} accepted jobs do not start"
        if self._failures >= FAILURES_MAX:
            return f"{self._failures} jobs in a row were not started"
        return None


def identity_of(metadata: str) -> str:
    """The name that the gateway gave this agent, by which the person's client knows it. Empty: an older gateway gave none."""
    try:
        identity = json.loads(metadata or "{}").get("agentIdentity", "")
    except (ValueError, AttributeError):
        return ""
    return identity if isinstance(identity, str) else ""


class Processors:
    """The load of the processors that this container may use, averaged, from 0 to 1."""

    def __init__(self) -> None:
        # Not at the head of the file, so that the rules above can be tested without the library.
        from livekit.agents.utils.hw import get_cpu_monitor

        self._monitor, self._samples = get_cpu_monitor(), [0.0]
        threading.Thread(target=self._measure, daemon=True, name="load").start()

    def _measure(self) -> None:
        while True:
            self._samples = [*self._samples, self._monitor.cpu_percent(interval=0.5)][-SAMPLES:]

    def load(self) -> float:
        return sum(self._samples) / len(self._samples)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def serve(jobs: Jobs, host: str, port: int, library_port: int) -> None:
    """Answers 200 on `/` as long as the worker is registered and takes jobs, else 503 with the reason; `/metrics` has both as numbers."""
    import aiohttp
    from aiohttp import web

    async def trouble() -> str | None:
        reason = jobs.trouble()
        if reason is None:
            try:
                limit = aiohttp.ClientTimeout(total=2)
                async with aiohttp.ClientSession(timeout=limit) as http:
                    async with http.get(f"http://127.0.0.1:{library_port}/") as answer:
                        reason = None if answer.status == 200 else (await answer.text())[:200]
            except (aiohttp.ClientError, TimeoutError):
                reason = "the worker does not answer"
        return reason

    async def healthy(_: web.Request) -> web.Response:
        reason = await trouble()
        return web.Response(status=503, text=reason) if reason else web.Response(text="OK")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=jobs.metrics(is_healthy=await trouble() is None))

    app = web.Application()
    app.add_routes([web.get("/", healthy), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    log.info("health is on http://%s:%d/", host, port)
