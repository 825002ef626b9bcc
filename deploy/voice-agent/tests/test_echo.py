"""A person who publishes many microphones is given the sound of the newest. Needs livekit."""

import asyncio
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from livekit import rtc
except ImportError as missing:
    raise unittest.SkipTest("livekit is not installed; `make test-voice-agent` installs it") from missing

import echo  # noqa: E402


class Stream:
    """Sound that never ends."""

    open: set[str] = set()

    def __init__(self, track, **_):
        self.track = track

    async def __aiter__(self):
        self.open.add(self.track.sid)
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.open.discard(self.track.sid)


class TestEcho(unittest.IsolatedAsyncioTestCase):
    async def test_the_newest_microphone_is_given_back(self):
        with mock.patch.object(echo.rtc, "AudioStream", Stream):
            partner = echo.Echo(SimpleNamespace(), {})
            for number in range(13):
                partner._listen(SimpleNamespace(sid=f"track-{number}", kind=rtc.TrackKind.KIND_AUDIO))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            self.assertEqual(Stream.open, {"track-12"})


if __name__ == "__main__":
    unittest.main()
