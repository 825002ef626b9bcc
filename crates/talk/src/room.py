"""Joins the room of one conversation for `ensemble talk`, which starts this program and carries it.

It has no key of the account and decides nothing. It reads orders as JSON lines on standard input and reports what happens as JSON lines on
standard output; each call of the agent is passed on, and answered as the parent says. When standard input ends, so does this program: a
parent that is gone leaves no participant in the room.

Orders: open {input?, output?} · join {url, token, agent} · mute {muted} · answer {id, text} or {id, code, message} · leave
Events: open · joined · agent {state} · speaking {me, agent} · said {segment, me, text, final} · call {id, method, caller, isAgent, payload}
        · mending {mending} · played · left {why} · failed {what, why}
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import wave
from typing import Any

METHODS = ("session.send", "session.read", "permission.deny", "permission.show")
TRANSCRIPTION = "lk.transcription"
# The most characters of one utterance here.
MOST_CHARACTERS = 4_000
# A call that is not answered by then is over for the agent, too.
CALL_SECONDS = 20.0
RATE = 48_000
# A file is played once the agent is ready, or after this.
READY_SECONDS = 30.0
LEAVE_SECONDS = 3.0

writing = threading.Lock()


def tell(event: str, **more: Any) -> None:
    line = json.dumps({"is": event, **more}, ensure_ascii=False)
    try:
        with writing:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except OSError:
        os._exit(0)


def fail(what: str, why: object) -> None:
    """The parent ends the conversation because of it."""
    tell("failed", what=what, why=str(why)[:400])


try:
    from livekit import rtc
except Exception as error:  # also a native library that does not fit this system
    fail("library", error)
    sys.exit(1)


class Files:
    """Files in place of a microphone and a loudspeaker."""

    def __init__(self, spoken: str, output: str | None) -> None:
        self._wave = wave.open(spoken, "rb")
        if self._wave.getsampwidth() != 2:
            raise wave.Error("it has no samples of 16 bits")
        self._rate, self._channels = self._wave.getframerate(), self._wave.getnchannels()
        self.source = rtc.AudioSource(self._rate, self._channels)
        self.recording = Recording(output) if output else None

    async def play(self, ready: asyncio.Event) -> None:
        """The file, and then silence, as a microphone has it."""
        size = self._rate // 100
        silence = bytes(size * self._channels * 2)
        begin = asyncio.get_running_loop().time() + READY_SECONDS
        is_played = False
        while True:
            data = silence
            if not is_played and (ready.is_set() or asyncio.get_running_loop().time() > begin):
                read = self._wave.readframes(size)
                data = read.ljust(len(silence), b"\0")
                if not read:
                    is_played = True
                    tell("played")
            await self.source.capture_frame(rtc.AudioFrame(data, self._rate, self._channels, size))

    def close(self) -> None:
        self._wave.close()
        if self.recording:
            self.recording.close()


class Devices:
    """The machine's microphone and loudspeaker. LiveKit's library plays what is subscribed to, and takes the echo out."""

    def __init__(self, output: str | None) -> None:
        self._audio = rtc.PlatformAudio()
        if not self._audio.recording_devices():
            raise LookupError("microphone")
        if not self._audio.playout_devices():
            raise LookupError("loudspeaker")
        self.source = self._audio.create_audio_source()
        self.recording = Recording(output) if output else None

    async def play(self, _: asyncio.Event) -> None:
        """The microphone is read by the library."""

    def close(self) -> None:
        self.source.close()
        self._audio.close()
        if self.recording:
            self.recording.close()


class Recording:
    """What the agent says, in a file."""

    def __init__(self, path: str) -> None:
        self._wave = wave.open(path, "wb")
        self._wave.setnchannels(1)
        self._wave.setsampwidth(2)
        self._wave.setframerate(RATE)

    async def take(self, track: Any) -> None:
        async for event in rtc.AudioStream(track, sample_rate=RATE, num_channels=1):
            self._wave.writeframes(bytes(event.frame.data))

    def close(self) -> None:
        self._wave.close()


class Conversation:
    def __init__(self) -> None:
        self._audio: Files | Devices | None = None
        self._room: Any = None
        self._track: Any = None
        self._agent = ""
        self._ready = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._calls = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_leaving = False

    async def take(self, order: dict[str, Any]) -> None:
        try:
            await self._do(order)
        except Exception as error:
            fail("program", repr(error))

    async def _do(self, order: dict[str, Any]) -> None:
        match order.get("do"):
            case "open":
                self._open(order.get("input"), order.get("output"))
            case "join":
                await self._join(order["url"], order["token"], order["agent"])
            case "mute" if self._track:
                self._track.mute() if order["muted"] else self._track.unmute()
            case "answer":
                waiting = self._waiting.pop(order["id"], None)
                if waiting and not waiting.done():
                    waiting.set_result(order)
            case "leave":
                await self.leave()

    def _open(self, spoken: str | None, output: str | None) -> None:
        try:
            self._audio = Files(spoken, output) if spoken else Devices(output)
        except LookupError as missing:
            fail(str(missing), "there is none")
        except (OSError, EOFError, wave.Error) as error:
            fail("file", error)
        except Exception as error:  # the library's, of the sound system
            fail("sound", error)
        else:
            tell("open")

    async def _join(self, url: str, token: str, agent: str) -> None:
        assert self._audio is not None
        self._agent = agent
        self._room = room = rtc.Room()
        for event in ("participant_connected", "participant_disconnected", "participant_attributes_changed", "reconnected"):
            room.on(event, lambda *_: self._tell_agent())
        room.on("track_published", lambda publication, participant: self._subscribe(publication, participant))
        room.on("track_subscribed", lambda track, *_: self._record(track))
        room.on("active_speakers_changed", self._tell_speakers)
        room.on("reconnecting", lambda: tell("mending", mending=True))
        room.on("reconnected", lambda: tell("mending", mending=False))
        room.on("disconnected", self._left)
        room.register_text_stream_handler(TRANSCRIPTION, lambda reader, identity: self._keep(self._read(reader, identity)))
        try:
            # No one else has anything to say here, so only the agent is subscribed to.
            await room.connect(url, token, rtc.RoomOptions(auto_subscribe=False))
            for method in METHODS:
                self._register(method)
            self._track = rtc.LocalAudioTrack.create_audio_track("microphone", self._audio.source)
            options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
            await room.local_participant.publish_track(self._track, options)
        except Exception as error:  # rtc.ConnectError and what the library adds to it
            fail("room", error)
            return
        tell("joined")
        for participant in list(room.remote_participants.values()):
            for publication in list(participant.track_publications.values()):
                self._subscribe(publication, participant)
        self._tell_agent()
        self._keep(self._audio.play(self._ready))

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_agent(self, participant: Any) -> bool:
        return participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT

    def _subscribe(self, publication: Any, participant: Any) -> None:
        if participant.identity == self._agent and self._is_agent(participant) and publication.kind == rtc.TrackKind.KIND_AUDIO:
            publication.set_subscribed(True)

    def _record(self, track: Any) -> None:
        if self._audio and self._audio.recording and track.kind == rtc.TrackKind.KIND_AUDIO:
            self._keep(self._audio.recording.take(track))

    def _tell_agent(self) -> None:
        agent = self._room.remote_participants.get(self._agent)
        if agent is None or not self._is_agent(agent):
            tell("agent", state=None)
            return
        if agent.attributes.get("voice.ready") == "1":
            self._ready.set()
        tell("agent", state=agent.attributes.get("lk.agent.state", "listening"))

    def _tell_speakers(self, speakers: list[Any]) -> None:
        me = self._room.local_participant.identity
        speaking = {one.identity for one in speakers}
        tell("speaking", me=me in speaking, agent=self._agent in speaking)

    async def _read(self, reader: Any, identity: str) -> None:
        """What was said. What was understood of the person so far comes again and again; what the agent says is one stream."""
        me = identity == self._room.local_participant.identity
        if not me and identity != self._agent:
            return
        attributes = reader.info.attributes or {}
        segment = str(attributes.get("lk.segment_id", reader.info.stream_id))[:100]
        text = ""
        async for piece in reader:
            text = (text + piece)[:MOST_CHARACTERS]
            tell("said", segment=segment, me=me, text=text, final=False)
        tell("said", segment=segment, me=me, text=text, final=not me or attributes.get("lk.transcription_final") != "false")

    def _register(self, method: str) -> None:
        async def call(invocation: Any) -> str:
            caller = self._room.remote_participants.get(invocation.caller_identity)
            self._calls += 1
            number, answer = self._calls, asyncio.get_running_loop().create_future()
            self._waiting[number] = answer
            is_agent = caller is not None and self._is_agent(caller)
            tell("call", id=number, method=method, caller=invocation.caller_identity, isAgent=is_agent, payload=invocation.payload)
            try:
                said = await asyncio.wait_for(answer, CALL_SECONDS)
            except asyncio.TimeoutError:
                raise rtc.RpcError(502, "The program did not answer.") from None
            finally:
                self._waiting.pop(number, None)
            if "text" in said:
                return said["text"]
            raise rtc.RpcError(said["code"], said["message"])

        self._room.local_participant.register_rpc_method(method, call)

    def _left(self, reason: Any) -> None:
        if self._is_leaving:
            return
        reasons = rtc.DisconnectReason
        closed = (reasons.ROOM_DELETED, reasons.ROOM_CLOSED, reasons.PARTICIPANT_REMOVED)
        tell("left", why="elsewhere" if reason == reasons.DUPLICATE_IDENTITY else "closed" if reason in closed else "lost")

    async def leave(self) -> None:
        self._is_leaving = True
        try:
            if self._room is not None:
                await asyncio.wait_for(self._room.disconnect(), LEAVE_SECONDS)
        except Exception as error:
            print(f"leaving the room: {error}", file=sys.stderr)
        for task in self._tasks:
            task.cancel()
        if self._audio is not None:
            self._audio.close()
        # The library's threads do not always end.
        os._exit(0)


def read_orders(loop: asyncio.AbstractEventLoop, conversation: Conversation) -> None:
    for line in sys.stdin.buffer:
        asyncio.run_coroutine_threadsafe(conversation.take(json.loads(line)), loop)
    os._exit(0)


async def main() -> None:
    orders = (asyncio.get_running_loop(), Conversation())
    threading.Thread(target=read_orders, args=orders, daemon=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
