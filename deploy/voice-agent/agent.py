"""A voice agent that keeps the voice gateway's contract: a conversation partner to start from.

It takes texts and contexts from the gateway (RPC methods `voice.text` and `voice.context`, data packets of the same names),
fetches what is too large for a packet, says when it is ready, and reports its state to the gateway. VOICE_AGENT_MODE chooses
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

from addresses import Callers
from echo import Echo
from gateway import Gateway
from inbox import Inbox
from models import load_plugins
from spoken import Spoken

log = logging.getLogger("voice-agent")

MODE = os.environ.get("VOICE_AGENT_MODE", "echo")
# Reserved for applications are all codes below 1000 and above 1999.
FORBIDDEN = 403

if MODE == "models":
    load_plugins()

server = AgentServer(
    # One process serves all conversations, because the models run elsewhere.
    job_executor_type=JobExecutorType.THREAD,
    load_fnc=lambda *_: 0.0,
    host=os.environ.get("VOICE_AGENT_HOST", "127.0.0.1"),
    port=int(os.environ.get("VOICE_AGENT_PORT", "8095")),
)


@server.rtc_session(agent_name=os.environ.get("LIVEKIT_AGENT_NAME", "ensemble-voice"))
async def converse(ctx: JobContext) -> None:
    job = json.loads(ctx.job.metadata or "{}")
    http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
    ctx.add_shutdown_callback(http.close)
    callers = Callers(job.get("humanIdentity", ""))
    ctx.room.on("participant_connected", lambda participant: callers.joined(participant.identity))
    await ctx.connect()
    for identity in ctx.room.remote_participants:
        callers.joined(identity)
    gateway = Gateway(job, http)
    if MODE == "models":
        partner: Echo | Spoken = Spoken(ctx, job, gateway, http)
    else:
        partner = Echo(ctx.room, job.get("humanIdentity", ""))
    inbox = Inbox(gateway, partner)
    listen(ctx.room, inbox, callers)

    await partner.start()
    if context := job.get("context"):
        inbox.take("context", {"id": "dispatch", **context})
    working = asyncio.create_task(inbox.run())

    async def stop(_: str = "") -> None:
        working.cancel()

    ctx.add_shutdown_callback(stop)
    # From here on nothing that is sent can be lost.
    await ctx.room.local_participant.set_attributes({"voice.ready": "1"})
    await gateway.report({"type": "ready"})


def listen(room: rtc.Room, inbox: Inbox, callers: Callers) -> None:
    """Takes what the server sends, and nothing from participants of the room."""

    def method(kind: str) -> None:
        def call(invocation: rtc.RpcInvocationData) -> str:
            if not callers.is_server(invocation.caller_identity):
                log.warning("a participant called voice.%s and was refused", kind)
                raise rtc.RpcError(FORBIDDEN, "This method is for the server only.")
            return inbox.take(kind, json.loads(invocation.payload))

        room.local_participant.register_rpc_method(f"voice.{kind}", call)

    method("text")
    method("context")

    @room.on("data_received")
    def on_packet(packet: rtc.DataPacket) -> None:
        of_server = packet.participant is None and callers.are_all_in(room.remote_participants)
        if of_server and packet.topic in ("voice.text", "voice.context"):
            inbox.take(packet.topic.removeprefix("voice."), json.loads(packet.data))


if __name__ == "__main__":
    cli.run_app(server)
