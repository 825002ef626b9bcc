"""The end-to-end story against a real LiveKit server: gateway, reference agent in echo mode, a headless person.

`make test-livekit` runs it when LIVEKIT_URL is set. The server must know LIVEKIT_API_KEY / LIVEKIT_API_SECRET, should have
`room.auto_create: false`, and should send its webhooks to http://127.0.0.1:3040/hooks/livekit (VOICE_E2E_PORT for another
port; the ones after it are used, too); without webhooks the reconciler notices everything more slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import e2e_programs as programs
from e2e_load import killed_agent, many_starts, outage
from e2e_programs import AGENT, BASE, INTERNAL, VOICE_KEY, Agents, Process, say, start_gateway, until
from livekit import api, rtc
from livekit.protocol import agent as worker_protocol

URL, KEY, SECRET = (os.environ[f"LIVEKIT_{name}"] for name in ("URL", "API_KEY", "API_SECRET"))


class Client:
    """The application, with its voice key."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        headers = {"X-Voice-Key": VOICE_KEY} | ({"Idempotency-Key": key} if key else {})
        async with self._http.request(method, BASE + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def try_start(self, session: str, key: str | None = None, **more: Any) -> dict[str, Any]:
        status, answer = await self.call("POST", "/v1/voice/session/start", {"userId": "e2e-user", "sessionId": session, **more}, key)
        assert status == 200, answer
        return answer

    async def start(self, session: str, key: str | None = None, **more: Any) -> dict[str, Any]:
        answer = await self.try_start(session, key, **more)
        assert answer["allowed"], answer
        return answer

    async def status(self, started: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.call("GET", f"/v1/voice/session/{started['gatewaySessionId']}/status")
        assert status == 200, answer
        return answer

    async def becomes(self, started: dict[str, Any], what: str, condition: Callable[[dict[str, Any]], bool], timeout: float = 180) -> dict[str, Any]:
        last: dict[str, Any] = {}

        async def question() -> bool:
            last.update(await self.status(started))
            return condition(last)

        try:
            await until(what, question, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from None
        return last

    async def text(self, started: dict[str, Any], text: str, message_id: str | None = None) -> dict[str, Any]:
        body = {"gatewaySessionId": started["gatewaySessionId"], "text": text}
        status, answer = await self.call("POST", "/v1/voice/session/text", body | ({"messageId": message_id} if message_id else {}))
        assert status == 200, answer
        return answer

    async def context(self, started: dict[str, Any], payload: Any) -> dict[str, Any]:
        body = {"gatewaySessionId": started["gatewaySessionId"], "payload": payload}
        status, answer = await self.call("POST", "/v1/voice/session/context", body)
        assert status == 200, answer
        return answer

    async def stop(self, started: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.call("POST", "/v1/voice/session/stop", {"gatewaySessionId": started["gatewaySessionId"]})
        assert status == 200, answer
        return answer


class Person:
    """A person with the token of `start`: a silent microphone, and a recorder for the echo."""

    def __init__(self) -> None:
        self.room = rtc.Room()
        self.echoes: list[dict[str, Any]] = []
        self.disconnected: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.receives_agent = False
        self.room.on("data_received", self._hear)
        self.room.on("disconnected", self._leave)
        self.room.on("track_subscribed", self._listen)

    async def join(self, started: dict[str, Any]) -> None:
        await self.room.connect(started["roomUrl"], started["participantToken"])
        source = rtc.AudioSource(48_000, 1)
        track = rtc.LocalAudioTrack.create_audio_track("microphone", source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await self.room.local_participant.publish_track(track, options)

    def _hear(self, packet: rtc.DataPacket) -> None:
        # Without a sender it may still be the agent's: one that took the place of another is listed a moment later.
        assert packet.topic == "voice.echo" or packet.participant is not None, "a packet of the gateway reached the person"
        if packet.topic == "voice.echo":
            self.echoes.append(json.loads(packet.data))

    def _leave(self, reason: Any) -> None:
        if not self.disconnected.done():
            self.disconnected.set_result(int(reason))

    def _listen(self, *_: Any) -> None:
        self.receives_agent = True

    def texts(self) -> list[str]:
        return [echo["text"] for echo in self.echoes if echo["kind"] == "text"]

    def contexts(self) -> list[dict[str, Any]]:
        return [echo for echo in self.echoes if echo["kind"] == "context"]

    async def hang_up(self) -> None:
        await self.room.disconnect()


@contextlib.asynccontextmanager
async def livekit() -> AsyncIterator[api.LiveKitAPI]:
    client = api.LiveKitAPI(URL, KEY, SECRET)
    try:
        yield client
    finally:
        await client.aclose()


async def server_version(http: aiohttp.ClientSession) -> str:
    """LiveKit's version, as a worker learns it when it registers. No other part of its interface names it."""
    token = api.AccessToken(KEY, SECRET).with_grants(api.VideoGrants(agent=True)).to_jwt()
    address = URL.replace("ws", "http", 1) if URL.startswith("ws") else URL
    async with http.ws_connect(f"{address.rstrip('/')}/agent", headers={"Authorization": f"Bearer {token}"}) as worker:
        wish = worker_protocol.RegisterWorkerRequest(agent_name=f"{AGENT}-asks", version="1")
        await worker.send_bytes(worker_protocol.WorkerMessage(register=wish).SerializeToString())
        answer = worker_protocol.ServerMessage.FromString(await worker.receive_bytes(timeout=20))
    return answer.register.server_info.version


async def rooms(client: api.LiveKitAPI, started: dict[str, Any]) -> list[Any]:
    return list((await client.room.list_rooms(api.ListRoomsRequest(names=[started["roomName"]]))).rooms)


async def ready(http: aiohttp.ClientSession) -> None:
    async def question() -> bool:
        try:
            async with http.get(f"{INTERNAL}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await until("the gateway is ready", question)


async def conversation(client: Client, server: api.LiveKitAPI) -> dict[str, Any]:
    say("1. start, with 40 KiB of context; a text before anybody is there")
    initial = {"files": ["x" * 100] * 400}
    asked = time.monotonic()
    started = await client.start("conversation", language="en", welcomeMessage="Hello", initialContextPayload=initial)
    say(f"   room {started['roomName']}, answered in {(time.monotonic() - asked) * 1000:.0f} ms")
    assert (await client.status(started))["state"] == "starting"
    early = await client.text(started, "said before the agent came")
    say(f"   text before the agent: {early['delivery']}")
    await client.becomes(started, "the agent is ready", lambda status: status["agent"]["ready"])
    say("   agent ready")
    person = Person()
    await person.join(started)
    await client.becomes(started, "person and agent are together", lambda status: status["state"] == "active")
    say("   active")

    async def early_echoed() -> bool:
        return "said before the agent came" in person.texts()

    await until("the early text was echoed", early_echoed)
    say("   the early text arrived")

    say("2. texts: acknowledged, once each, in order")
    for number in range(5):
        answer = await client.text(started, f"text {number}", f"message-{number}")
        assert answer["delivery"] == "delivered", answer
    again = await client.text(started, "text 0", "message-0")
    assert again["delivery"] == "delivered", again
    large = "\x01" * 8_000
    assert (await client.text(started, large))["delivery"] == "delivered"

    async def all_echoed() -> bool:
        return len(person.texts()) >= 7

    await until("all texts were echoed", all_echoed)
    expected = ["said before the agent came", *(f"text {number}" for number in range(5)), large]
    assert person.texts() == expected, person.texts()
    say("   7 texts echoed in order, the repeated one once, the large one fetched")

    say("3. context: 40 KiB, fetched by the agent")
    payload = {"log": "y" * 40_960}
    answer = await client.context(started, payload)
    assert answer["contextVersion"] == 2, answer
    await client.becomes(started, "the context was fetched", lambda status: status["pending"]["deliveredContextVersion"] == 2)
    # The first one came with the dispatch, which the agent reads as JSON; the second is fetched as it was sent.
    texts = (json.dumps(initial, separators=(",", ":")), json.dumps(payload))
    digests = [(version, hashlib.sha256(text.encode()).hexdigest()) for version, text in enumerate(texts, 1)]

    async def contexts_echoed() -> bool:
        return len(person.contexts()) >= len(digests)

    await until("the contexts were echoed", contexts_echoed)
    assert [(echo["version"], echo["sha256"]) for echo in person.contexts()] == digests, person.contexts()
    await until("the agent's sound arrived", lambda: asyncio.sleep(0, person.receives_agent))
    say("   versions 1 and 2 echoed, digests equal")

    await hostile(client, person, started, len(digests))

    say("4. stop")
    stopped = await client.stop(started)
    assert (stopped["state"], stopped["endReason"]) == ("stopped", "stop_requested"), stopped
    reason = await asyncio.wait_for(person.disconnected, 60)
    assert reason == 5, f"the person was disconnected for reason {reason}, not ROOM_DELETED"
    assert not await rooms(server, started)
    say("   person disconnected by ROOM_DELETED, room gone")
    return started


async def hostile(client: Client, person: Person, started: dict[str, Any], version: int) -> None:
    """The person calls what only the server may, with nothing but the token of their start."""
    fetched: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.append((await reader.read(4_096)).decode(errors="replace"))
        writer.close()

    mine = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{mine.sockets[0].getsockname()[1]}/texts/1"
    attempts: dict[str, list[dict[str, Any]]] = {
        "voice.text": [{"id": "stolen", "seq": 99, "text": "as the gateway"}, {"id": "fetched", "seq": 100, "url": url}],
        "voice.say": [{"id": "said", "text": "as the gateway"}],
        "voice.context": [{"id": "context", "version": 999_999, "url": url}, {"id": "inline", "version": 999_999, "payload": {}}],
        "voice.alive": [{}],
    }
    before = len(person.echoes)
    for method, messages in attempts.items():
        for message in messages:
            try:
                await person.room.local_participant.perform_rpc(
                    destination_identity=started["agentIdentity"], method=method, payload=json.dumps(message)
                )
            except rtc.RpcError as error:
                assert error.message == "This method is for the server only.", f"{method}: {error.message}"
            else:
                raise AssertionError(f"{method} took {message} of the person")
            await person.room.local_participant.publish_data(json.dumps(message), topic=method)
    # Whatever a packet could have set off comes before the echo of a text that follows it; the id that the person used first is free.
    assert (await client.text(started, "of the gateway", "stolen"))["delivery"] == "delivered"
    answer = await client.context(started, {"of": "the gateway"})
    assert answer["contextVersion"] == version + 1, answer

    async def both_echoed() -> bool:
        return len(person.echoes) >= before + 2

    await until("what the gateway sent was echoed", both_echoed)
    assert person.texts()[-1] == "of the gateway" and person.contexts()[-1]["version"] == version + 1, person.echoes[before:]
    assert len(person.echoes) == before + 2, person.echoes[before:]
    assert not fetched, f"the agent called the person's address: {fetched}"
    mine.close()
    calls = sum(map(len, attempts.values()))
    say(f"   {calls} calls and {calls} packets of the person: refused or ignored, nothing fetched, id and version still the gateway's")


async def old_token(client: Client, server: api.LiveKitAPI, started: dict[str, Any]) -> None:
    say("5. the old token cannot bring the room back")
    try:
        await Person().join(started)
        say("   the server let it in (auto_create is on); the gateway must delete the room again")
    except rtc.ConnectError as error:
        say(f"   refused: {str(error)[:80]}")

    async def gone() -> bool:
        return not await rooms(server, started)

    await until("the room is gone", gone)
    assert (await client.status(started))["endReason"] == "stop_requested"


async def person_leaves(client: Client) -> None:
    say("8. the person hangs up; another one is cut off")
    started = await client.start("hangs-up")
    person = Person()
    await person.join(started)
    await client.becomes(started, "active", lambda status: status["state"] == "active")
    await person.hang_up()
    status = await client.becomes(started, "ended", lambda status: status["endedAt"] is not None)
    assert status["endReason"] == "left", status
    say("   hung up: left at once")
    started = await client.start("cut-off")
    more = {"PERSON_URL": started["roomUrl"], "PERSON_TOKEN": started["participantToken"]}
    person_apart = Process("person", [sys.executable, __file__, "person"], more)
    await client.becomes(started, "active", lambda status: status["state"] == "active")
    person_apart.kill()
    killed = time.monotonic()
    status = await client.becomes(started, "ended", lambda status: status["endedAt"] is not None, 240)
    assert status["endReason"] == "left", status
    say(f"   killed with kill -9: left, {time.monotonic() - killed:.1f} s later")


async def no_agent(client: Client, agents: Agents, server: api.LiveKitAPI) -> None:
    say("9. no worker at all")
    agents.kill_all()
    started = await client.start("no-agent")
    status = await client.becomes(started, "given up", lambda status: status["state"] == "error", 240)
    assert status["endReason"] == "agent_unavailable", status

    async def gone() -> bool:
        return not await rooms(server, started)

    await until("the room is gone", gone)
    say("   agent_unavailable, room gone")


async def restart(client: Client, data: Path, gateway: Process, agents: Agents, http: aiohttp.ClientSession) -> Process:
    say("11. the gateway is killed in the middle, and comes back")
    key = f"e2e-restart-{os.getpid()}"
    started = await client.start("restart", key)
    person = Person()
    await person.join(started)
    await client.becomes(started, "active", lambda status: status["state"] == "active")
    gateway.kill()
    gateway = start_gateway(data)
    await ready(http)
    status = await client.status(started)
    assert status["state"] == "active", status
    assert (await client.text(started, "after the restart"))["delivery"] == "delivered"
    again = await client.start("restart", key)
    assert again["gatewaySessionId"] == started["gatewaySessionId"], again
    say("   state kept, text delivered, the same Idempotency-Key gives the same session")
    replacing = await client.start("restart")
    assert replacing["gatewaySessionId"] != started["gatewaySessionId"]
    status = await client.becomes(started, "replaced", lambda status: status["state"] == "stopped")
    assert status["endReason"] == "replaced", status
    await asyncio.wait_for(person.disconnected, 60)
    await client.stop(replacing)
    say("   another start replaced it, and its person was disconnected")
    return gateway


async def story() -> None:
    data = programs.LOGS / "data"
    data.mkdir()
    gateway, agents = start_gateway(data), Agents()
    try:
        async with aiohttp.ClientSession() as http, livekit() as server:
            await ready(http)
            ours = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("livekit", "livekit-agents"))
            say(f"livekit-server {await server_version(http)}; {ours}")
            await agents.start()
            say("gateway ready, worker registered")
            client = Client(http)
            started = await conversation(client, server)
            await old_token(client, server, started)
            await killed_agent(client, Person(), agents, http)
            await many_starts(client, Person, agents, http)
            await person_leaves(client)
            await no_agent(client, agents, server)
            await outage(client, agents)
            gateway = await restart(client, data, gateway, agents, http)
            left = [room.name for room in (await server.room.list_rooms(api.ListRoomsRequest())).rooms]
            assert not left, f"rooms were left behind: {left}"
            say("no room is left on the server; the story is complete")
    finally:
        agents.kill_all()
        gateway.kill(signal.SIGTERM)


async def person_apart() -> None:
    """A person in a process of their own, which the scenario can kill."""
    person = Person()
    await person.join({"roomUrl": os.environ["PERSON_URL"], "participantToken": os.environ["PERSON_TOKEN"]})
    await asyncio.sleep(3600)


if __name__ == "__main__":
    if sys.argv[1:] == ["person"]:
        asyncio.run(person_apart())
        sys.exit()
    with tempfile.TemporaryDirectory(prefix="ensemble-voice-e2e-") as folder:
        programs.LOGS = Path(folder)
        try:
            asyncio.run(asyncio.wait_for(story(), 1_800))
        except BaseException:
            for path in sorted(programs.LOGS.glob("*.log")):
                print(f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-40:], sep="\n", flush=True)
            raise
