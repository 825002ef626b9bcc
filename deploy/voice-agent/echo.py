"""A conversation partner without a model: it returns everything, texts and contexts as packets on `voice.echo`, speech as
sound."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from livekit import rtc

ECHO_TOPIC = "voice.echo"
SAMPLE_RATE = 48_000


class Echo:
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
        await self._send({"kind": "text", "id": message_id, "seq": seq, "text": text})

    async def on_context(self, version: int, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        await self._send({"kind": "context", "version": version, "bytes": len(body), "sha256": digest})

    async def _send(self, packet: dict[str, Any]) -> None:
        # What is sent before the person joins waits for them.
        while self._human not in self._room.remote_participants:
            await asyncio.sleep(0.1)
        to = [self._human]
        await self._room.local_participant.publish_data(json.dumps(packet), topic=ECHO_TOPIC, destination_identities=to)
