"""A voice agent that keeps the voice gateway's contract: a conversation partner to start from.

It takes texts and contexts from the gateway (RPC methods `voice.text` and `voice.context`), fetches what is too large for a packet, says when it is ready, and reports its state to the gateway. VOICE_AGENT_MODE chooses
what it does with them: `echo` gives everything back and needs no model; `models` talks, with the models that VOICE_STT,
VOICE_LLM, VOICE_TTS and VOICE_VAD name.

Run it: `python agent.py start` with LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET and LIVEKIT_AGENT_NAME.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os

import aiohttp
from livekit import rtc
from livekit.agents import AgentServer, JobContext, JobExecutorType, cli

import health
from addresses import Callers
from echo import Echo
from gateway import Gateway
from health import Jobs, free_port
from inbox import Inbox
from models import NotUsable, load_plugins
from spoken import Spoken

log = logging.getLogger("voice-agent")

MODE = os.environ.get("VOICE_AGENT_MODE", "echo")
# Reserved for applications are all codes below 1000 and above 1999.
FORBIDDEN = 403
# Conversations at once. Each has a process of about 150 MiB, and uses a sixth of a core while a person speaks.
MAX_JOBS = int(os.environ.get("VOICE_AGENT_MAX_JOBS") or 4 * (os.cpu_count() or 1))
# The share of the processors above which no conversation is taken.
LOAD_MAX = float(os.environ.get("VOICE_AGENT_LOAD_MAX") or 0.7)
# Processes that are ready before there is a conversation.
IDLE_PROCESSES = min(2, MAX_JOBS)

if MODE == "models":
    load_plugins()

serving: set[asyncio.Task[None]] = set()
jobs = Jobs(MAX_JOBS, LOAD_MAX)
# The library's own health, for ours.
LIBRARY_PORT = free_port()
server = AgentServer(
    # A conversation that ends its process, as an overloaded join can (livekit/python-sdks#785), ends no other one.
    job_executor_type=JobExecutorType.PROCESS,
    num_idle_processes=IDLE_PROCESSES,
    drain_timeout=int(os.environ.get("VOICE_AGENT_DRAIN_SECONDS") or 3600),
    load_fnc=jobs.load,
    load_threshold=health.FULL,
    host="127.0.0.1",
    port=LIBRARY_PORT,
)


@server.on("worker_started")
def serve_health() -> None:
    host, port = os.environ.get("VOICE_AGENT_HOST", "127.0.0.1"), int(os.environ.get("VOICE_AGENT_PORT", "8095"))
    serving.add(asyncio.get_running_loop().create_task(health.serve(jobs, host, port, LIBRARY_PORT)))


@server.rtc_session(agent_name=os.environ.get("LIVEKIT_AGENT_NAME", "ensemble-voice"), on_request=jobs.take)
async def converse(ctx: JobContext) -> None:
    job = json.loads(ctx.job.metadata or "{}")
    http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
    partner: Echo | Spoken | None = None

    async def close(_: str = "") -> None:
        if partner is not None:
            await partner.close()
        await http.close()

    ctx.add_shutdown_callback(close)
    callers = Callers(job.get("humanIdentity", ""))
    ctx.room.on("participant_connected", lambda participant: callers.joined(participant.identity))
    await ctx.connect()
    for identity in ctx.room.remote_participants:
        callers.joined(identity)
    gateway = Gateway(job, http)
    if MODE == "models":
        partner = Spoken(ctx, job, gateway, http)
    else:
        partner = Echo(ctx.room, job)
    inbox = Inbox(gateway, partner)
    listen(ctx.room, inbox, callers)

    try:
        await partner.start()
    except Exception as error:
        # Without this an agent that cannot talk only looks absent.
        code = error.code if isinstance(error, NotUsable) else "start_failed"
        message = str(error) if isinstance(error, NotUsable) else type(error).__name__
        await gateway.report({"type": "error", "code": code, "message": message})
        raise
    if context := job.get("context"):
        inbox.take("context", {"id": "dispatch", **context})
    working = [asyncio.create_task(inbox.run())]

    async def stop(_: str = "") -> None:
        for task in working:
            task.cancel()

    ctx.add_shutdown_callback(stop)
    # From here on nothing that is sent can be lost.
    await ctx.room.local_participant.set_attributes({"voice.ready": "1"})
    await gateway.report({"type": "ready"})
    working.append(asyncio.create_task(gateway.keep_alive()))


def listen(room: rtc.Room, inbox: Inbox, callers: Callers) -> None:
    """Takes what the server sends, and nothing from participants of the room. Data packets do not say reliably who sent them
    (those of a person who is not listed yet come without a sender, as the server's do), so none are taken."""

    def method(kind: str) -> None:
        def call(invocation: rtc.RpcInvocationData) -> str:
            if not callers.is_server(invocation.caller_identity):
                log.warning("a participant called voice.%s and was refused", kind)
                raise rtc.RpcError(FORBIDDEN, "This method is for the server only.")
            return inbox.take(kind, json.loads(invocation.payload))

        room.local_participant.register_rpc_method(f"voice.{kind}", call)

    def alive(invocation: rtc.RpcInvocationData) -> str:
        """The gateway asks when heartbeats have stopped."""
        if not callers.is_server(invocation.caller_identity):
            raise rtc.RpcError(FORBIDDEN, "This method is for the server only.")
        return '{"ok":true}'

    room.local_participant.register_rpc_method("voice.alive", alive)
    method("text")
    method("say")
    method("context")


if __name__ == "__main__":
    cli.run_app(server)
