"""A conversation partner without a model: it returns everything, texts and contexts as packets on `voice.echo`, speech as
sound."""

from __future__ import annotations

import array
import asyncio
import hashlib
import json
import math
from collections.abc import Coroutine, Iterator
from typing import Any

from livekit import rtc

ECHO_TOPIC = "voice.echo"
SAMPLE_RATE = 48_000
# The two tones of a welcome: their frequencies in hertz, and how long each lasts in frames of 10 ms.
TONES, TONE_FRAMES = (523, 784), 20


class Echo:
    def __init__(self, room: rtc.Room, job: dict[str, Any]) -> None:
        self._room, self._human, self._job = room, job.get("humanIdentity", ""), job
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._source = rtc.AudioSource(SAMPLE_RATE, 1)
        track = rtc.LocalAudioTrack.create_audio_track("echo", self._source)
        await self._room.local_participant.publish_track(track)
        self._room.on("track_subscribed", lambda track, *_: self._listen(track))
        for participant in self._room.remote_participants.values():
            for publication in participant.track_publications.values():
                if publication.track:
                    self._listen(publication.track)
        if welcome := self._job.get("welcomeMessage"):
            self._keep(self._welcome(welcome))

    async def _welcome(self, welcome: str) -> None:
        """It has no voice: the words come as a packet, with two tones."""
        await self._send({"kind": "welcome", "text": welcome, "language": self._job.get("language")})
        for frame in tones():
            await self._source.capture_frame(frame)

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _listen(self, track: rtc.Track) -> None:
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            # The newest one only, because a person can publish any number of them.
            if self._listening is not None:
                self._listening.cancel()
            self._listening = self._keep(self._give_back(track))

    async def _give_back(self, track: rtc.Track) -> None:
        async for event in rtc.AudioStream(track, sample_rate=SAMPLE_RATE, num_channels=1):
            await self._source.capture_frame(event.frame)

    async def close(self) -> None:
        """Nothing waits here."""

    async def on_text(self, message_id: str, seq: int, text: str) -> None:
        await self._send({"kind": "text", "id": message_id, "seq": seq, "text": text})

    async def on_say(self, message_id: str, text: str, interrupt: bool) -> None:
        await self._send({"kind": "say", "id": message_id, "text": text, "interrupt": interrupt})

    async def on_context(self, version: int, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        await self._send({"kind": "context", "version": version, "bytes": len(body), "sha256": digest})

    async def _send(self, packet: dict[str, Any]) -> None:
        # What is sent before the person joins waits for them.
        while self._human not in self._room.remote_participants:
            await asyncio.sleep(0.1)
        to = [self._human]
        await self._room.local_participant.publish_data(json.dumps(packet), topic=ECHO_TOPIC, destination_identities=to)


def tones() -> Iterator[rtc.AudioFrame]:
    size = SAMPLE_RATE // 100
    for pitch in TONES:
        for number in range(TONE_FRAMES):
            at = (number * size + sample for sample in range(size))
            wave = array.array("h", (int(6_000 * math.sin(2 * math.pi * pitch * t / SAMPLE_RATE)) for t in at))
            yield rtc.AudioFrame(wave.tobytes(), SAMPLE_RATE, 1, size)
