"""A voice agent that keeps the voice gateway's contract: a conversation partner to start from.

It hears texts and contexts (RPC methods `voice.text` and `voice.context`, data packets of the same names), fetches what is
too large for a packet, says when it is ready, and reports its state to the gateway. VOICE_AGENT_MODE chooses what it does with
what it hears: `echo` gives everything back and needs no model; `models` talks, with the models that VOICE_STT, VOICE_LLM,
VOICE_TTS and VOICE_VAD name.

Run it: `python agent.py start` with LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET and LIVEKIT_AGENT_NAME.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import logging
import os
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, JobExecutorType, cli, function_tool

log = logging.getLogger("voice-agent")

ECHO_TOPIC = "voice.echo"
SAMPLE_RATE = 48_000
# More than a model should be made to read at once.
TOOL_ANSWER_MAX = 65_536
MODE = os.environ.get("VOICE_AGENT_MODE", "echo")
ROLES = ("STT", "LLM", "TTS", "VAD")


class Gateway:
    """The gateway's interface for agents. Every call that fails is tried again, because the gateway may be restarting."""

    def __init__(self, job: dict[str, Any], http: aiohttp.ClientSession) -> None:
        gateway = job.get("gateway", {})
        self._events = gateway.get("eventsUrl")
        self._headers = {"Authorization": f"Bearer {gateway.get('token', '')}"}
        self._http = http

    async def report(self, event: dict[str, Any], attempts: int = 8) -> None:
        if not self._events:
            return
        for attempt in range(attempts):
            try:
                async with self._http.post(self._events, json=event, headers=self._headers) as answer:
                    if answer.status < 500:
                        return
            except (aiohttp.ClientError, asyncio.TimeoutError):
                pass
            await asyncio.sleep(min(0.2 * 2**attempt, 5))
        log.warning("the gateway did not take an event of type %s", event["type"])

    async def fetch(self, url: str, attempts: int = 8) -> tuple[bytes, int]:
        """The text at one of the gateway's addresses, and the version of a context."""
        for attempt in range(attempts):
            try:
                async with self._http.get(url, headers=self._headers) as answer:
                    answer.raise_for_status()
                    return await answer.read(), int(answer.headers.get("X-Context-Version", 0))
            except (aiohttp.ClientError, asyncio.TimeoutError):
                if attempt + 1 == attempts:
                    raise
                await asyncio.sleep(min(0.2 * 2**attempt, 5))
        raise AssertionError("unreachable")


def check(content: bytes, pointer: dict[str, Any]) -> None:
    if hashlib.sha256(content).hexdigest() != pointer["sha256"]:
        raise ValueError("what was fetched is not what was announced")


class Inbox:
    """Takes each text once and in order, and only newer contexts. It acknowledges at once and works later, because the
    server repeats a call that takes longer than three seconds."""

    def __init__(self, gateway: Gateway, partner: Echo | Spoken) -> None:
        self._gateway, self._partner = gateway, partner
        self._seen: set[str] = set()
        self._context_version = 0
        self._work: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def take(self, kind: str, message: dict[str, Any]) -> str:
        duplicate = message["id"] in self._seen
        if not duplicate:
            self._seen.add(message["id"])
            self._work.put_nowait((kind, message))
        return json.dumps({"ok": True, "duplicate": duplicate})

    async def run(self) -> None:
        while True:
            kind, message = await self._work.get()
            try:
                if kind == "text":
                    await self._text(message)
                else:
                    await self._context(message)
            except Exception as error:  # one bad message must not end the conversation
                log.exception("a %s could not be taken up", kind)
                await self._gateway.report({"type": "error", "code": f"{kind}_failed", "message": type(error).__name__})

    async def _text(self, message: dict[str, Any]) -> None:
        text = message.get("text", message.get("message"))
        if text is None:
            body, _ = await self._gateway.fetch(message["url"])
            text = json.loads(body)["text"]
            check(text.encode(), message)
        await self._partner.on_text(message["id"], message.get("seq", 0), text)

    async def _context(self, message: dict[str, Any]) -> None:
        version = message["version"]
        if version <= self._context_version:
            return
        if "payload" in message:
            body = json.dumps(message["payload"], separators=(",", ":"), ensure_ascii=False).encode()
        else:
            body, newest = await self._gateway.fetch(message["url"])
            if newest == version:
                check(body, message)
            # A newer one has arrived in the meantime.
            version = max(version, newest)
        self._context_version = version
        await self._partner.on_context(version, body)


class Echo:
    """Returns everything: texts and contexts as packets on `voice.echo`, speech as sound."""

    def __init__(self, room: rtc.Room, human: str) -> None:
        self._room, self._human = room, human
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._source = rtc.AudioSource(SAMPLE_RATE, 1)
        track = rtc.LocalAudioTrack.create_audio_track("echo", self._source)
        await self._room.local_participant.publish_track(track)
        self._room.on("track_subscribed", lambda track, *_: self._listen(track))
        for participant in self._room.remote_participants.values():
            for publication in participant.track_publications.values():
                if publication.track:
                    self._listen(publication.track)

    def _listen(self, track: rtc.Track) -> None:
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            task = asyncio.create_task(self._give_back(track))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, track: rtc.Track) -> None:
        async for event in rtc.AudioStream(track, sample_rate=SAMPLE_RATE, num_channels=1):
            await self._source.capture_frame(event.frame)

    async def on_text(self, message_id: str, seq: int, text: str) -> None:
        await self._say({"kind": "text", "id": message_id, "seq": seq, "text": text})

    async def on_context(self, version: int, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        await self._say({"kind": "context", "version": version, "bytes": len(body), "sha256": digest})

    async def _say(self, packet: dict[str, Any]) -> None:
        # What is said before the person joins is repeated when they join.
        while self._human not in self._room.remote_participants:
            await asyncio.sleep(0.1)
        to = [self._human]
        await self._room.local_participant.publish_data(json.dumps(packet), topic=ECHO_TOPIC, destination_identities=to)


class Spoken:
    """Talks, with the models that the configuration names."""

    def __init__(self, ctx: JobContext, job: dict[str, Any], gateway: Gateway, http: aiohttp.ClientSession) -> None:
        self._ctx, self._job, self._gateway, self._http = ctx, job, gateway, http

    async def start(self) -> None:
        stt, llm, tts, vad = (model(role) for role in ROLES)
        self._session = AgentSession(stt=stt, llm=llm, tts=tts, vad=vad)
        self._agent = Agent(instructions=instructions(self._job), tools=tools(self._job, self._http))
        self._session.on("agent_state_changed", lambda event: self._report({"type": "state", "state": event.new_state}))
        self._session.on("conversation_item_added", lambda event: self._on_item(event.item))
        await self._session.start(agent=self._agent, room=self._ctx.room)
        if tts is None:
            # Without a speech model its answers are text only.
            self._session.output.set_audio_enabled(False)
        welcome = self._job.get("welcomeMessage")
        if welcome and tts is not None:
            self._session.say(welcome)

    def _report(self, event: dict[str, Any]) -> None:
        asyncio.ensure_future(self._gateway.report(event, attempts=1))

    def _on_item(self, item: Any) -> None:
        if text := getattr(item, "text_content", None):
            self._report({"type": "transcript", "role": item.role, "text": text})

    async def on_text(self, message_id: str, seq: int, text: str) -> None:
        self._session.interrupt()
        self._session.generate_reply(user_input=text)

    async def on_context(self, version: int, body: bytes) -> None:
        chat = self._agent.chat_ctx.copy()
        chat.add_message(role="system", content=f"The state of the application (version {version}): {body.decode()}")
        await self._agent.update_chat_ctx(chat)


def load_plugins() -> None:
    """Plugins register themselves when they are imported, which only the main thread may do."""
    for role in ROLES:
        plugin, colon, _ = os.environ.get(f"VOICE_{role}", "").partition(":")
        if colon or (plugin and role == "VAD"):
            importlib.import_module(f"livekit.plugins.{plugin}")


def model(role: str) -> Any:
    """`VOICE_STT=openai:gpt-4o-transcribe` is class STT of livekit.plugins.openai with that model; a value without a colon
    goes to LiveKit Inference as it is. Nothing set: the session has no such model."""
    name = os.environ.get(f"VOICE_{role}", "")
    if not name:
        return None
    plugin, _, model_name = name.partition(":")
    if not model_name and role != "VAD":
        return name
    made = getattr(importlib.import_module(f"livekit.plugins.{plugin}"), role)
    return made.load() if role == "VAD" else made(model=model_name)


def instructions(job: dict[str, Any]) -> str:
    default = "You are the voice of a coding session. Answer briefly, in words that can be spoken."
    language = f" Speak {job['language']}." if job.get("language") else ""
    return os.environ.get("VOICE_INSTRUCTIONS", default) + language


def tools(job: dict[str, Any], http: aiohttp.ClientSession) -> list[Any]:
    """One tool, if there is a tool bridge and VOICE_TOOL_PATH names its path."""
    bridge, path = job.get("toolBridge"), os.environ.get("VOICE_TOOL_PATH")
    if not bridge or not path:
        return []

    @function_tool
    async def ask_coding_session(request: str) -> str:
        """Passes a request of the user to their coding session, and returns its answer."""
        headers = {"Authorization": f"Bearer {bridge.get('token', '')}"}
        body = {"sessionId": job["sessionId"], "request": request}
        # The operator allowed this origin only, so redirects are not followed.
        wish = http.post(f"{bridge['baseUrl']}{path}", json=body, headers=headers, allow_redirects=False)
        async with wish as answer:
            if answer.status >= 300:
                return f"The coding session did not take the request (status {answer.status})."
            said = bytearray()
            async for piece in answer.content.iter_chunked(8_192):
                said += piece
                if len(said) >= TOOL_ANSWER_MAX:
                    break
            return said[:TOOL_ANSWER_MAX].decode(errors="replace")

    return [ask_coding_session]


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
    await ctx.connect()
    gateway = Gateway(job, http)
    if MODE == "models":
        partner: Echo | Spoken = Spoken(ctx, job, gateway, http)
    else:
        partner = Echo(ctx.room, job.get("humanIdentity", ""))
    inbox = Inbox(gateway, partner)

    me = ctx.room.local_participant
    me.register_rpc_method("voice.text", lambda call: inbox.take("text", json.loads(call.payload)))
    me.register_rpc_method("voice.context", lambda call: inbox.take("context", json.loads(call.payload)))

    @ctx.room.on("data_received")
    def on_packet(packet: rtc.DataPacket) -> None:
        # The gateway's packets come from the server, not from a participant.
        if packet.participant is None and packet.topic in ("voice.text", "voice.context"):
            inbox.take(packet.topic.removeprefix("voice."), json.loads(packet.data))

    await partner.start()
    if context := job.get("context"):
        inbox.take("context", {"id": "dispatch", **context})
    working = asyncio.create_task(inbox.run())

    async def stop(_: str = "") -> None:
        working.cancel()

    ctx.add_shutdown_callback(stop)
    # From here on nothing that is sent can be lost.
    await me.set_attributes({"voice.ready": "1"})
    await gateway.report({"type": "ready"})


if __name__ == "__main__":
    cli.run_app(server)
