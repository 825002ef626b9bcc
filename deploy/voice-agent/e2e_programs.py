"""The programs of the end-to-end story: the gateway, and workers of the reference agent, each of which can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

HERE = Path(__file__).resolve().parent
GATEWAY = os.environ["VOICE_GATEWAY_BIN"]
PORT = int(os.environ.get("VOICE_E2E_PORT", "3040"))
BASE = f"http://127.0.0.1:{PORT}"
INTERNAL = f"http://127.0.0.1:{PORT + 1}"
VOICE_KEY = "voice-key-of-the-end-to-end-story"
AGENT = f"e2e-agent-{os.getpid()}"
BEGUN = time.monotonic()
# Where each program writes its log. The story sets it.
LOGS = Path(".")


def say(what: str) -> None:
    print(f"[{time.monotonic() - BEGUN:7.2f} s] {what}", flush=True)


async def until(what: str, question: Callable[[], Awaitable[Any]], timeout: float = 180.0) -> Any:
    """Asks until the answer is true; fails when it is not in time."""
    deadline = time.monotonic() + timeout
    while True:
        if answer := await question():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        await asyncio.sleep(0.05)


class Process:
    """A program that the scenario starts and ends."""

    def __init__(self, name: str, command: list[str], more: dict[str, str]) -> None:
        self.log = open(LOGS / f"{name}.log", "ab")
        environment = {**os.environ, **more}
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)

    def kill(self, how: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait()


def start_gateway(data: Path, **more: str) -> Process:
    variables = {
        "DATABASE_URL": f"sqlite:{data}/voice.db",
        "PUBLIC_LISTEN": f"127.0.0.1:{PORT}",
        "INTERNAL_LISTEN": f"127.0.0.1:{PORT + 1}",
        "INTERNAL_TOKEN": "internal-token-of-the-end-to-end-story",
        "VOICE_PUBLIC_KEY": VOICE_KEY,
        "VOICE_GATEWAY_PUBLIC_URL": BASE,
        "LIVEKIT_AGENT_NAME": AGENT,
        "VOICE_DEPARTURE_TIMEOUT_SECONDS": "5",
        "VOICE_AGENT_JOIN_TIMEOUT_SECONDS": "5",
        "VOICE_RECONCILE_SECONDS": "3",
        "VOICE_MAX_SESSIONS_PER_USER": "0",
        "VOICE_DAILY_SECONDS_PER_USER": "0",
        "VOICE_STARTS_PER_MINUTE_PER_USER": "0",
        "VOICE_STARTS_PER_MINUTE_PER_ADDRESS": "0",
        # A busy machine acknowledges late.
        "VOICE_DELIVERY_TIMEOUT_MS": "20000",
        "RUST_LOG": "info",
        **more,
    }
    return Process("gateway", [GATEWAY], variables)


class Worker:
    """One worker of the reference agent, with the processes of its conversations."""

    def __init__(self, name: str, port: int) -> None:
        # However busy the machine is, it takes each conversation up to its limit.
        more = {"LIVEKIT_AGENT_NAME": AGENT, "VOICE_AGENT_MODE": "echo", "VOICE_AGENT_PORT": str(port), "VOICE_AGENT_LOAD_MAX": "1"}
        self.name, self.port = name, port
        self.program = Process(name, [sys.executable, str(HERE / "agent.py"), "start"], more)

    def processes(self) -> list[int]:
        """Its own and all that came of it, the newest last."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                # The name of a program may have spaces and brackets in it.
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
        found = [self.program.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def kill(self) -> None:
        """All of them at once, as when their machine goes."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.program.process.wait()

    async def metric(self, http: aiohttp.ClientSession, name: str) -> float:
        async with http.get(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"ensemble_voice_agent_{name} ")))


class Agents:
    """Workers of the reference agent."""

    def __init__(self) -> None:
        self.running: list[Worker] = []
        self._begun = 0

    async def start(self) -> Worker:
        self._begun += 1
        port = PORT + 1 + self._begun
        worker = Worker(f"agent-{port}", port)
        self.running.append(worker)

        async def registered() -> bool:
            return "registered worker" in (LOGS / f"{worker.name}.log").read_text(errors="replace")

        await until("the worker registers", registered)
        return worker

    async def at_work(self, http: aiohttp.ClientSession) -> Worker:
        """The one that has a conversation."""
        found: list[Worker] = []

        async def busy() -> bool:
            found[:] = [one for one in self.running if await one.metric(http, "jobs") >= 1]
            return bool(found)

        await until("a worker has a conversation", busy)
        return found[0]

    def kill(self, worker: Worker) -> None:
        worker.kill()
        self.running.remove(worker)

    def kill_all(self) -> None:
        for worker in list(self.running):
            self.kill(worker)
