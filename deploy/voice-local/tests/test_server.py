"""OpenAI's protocol as the voice agent speaks it, over a real connection, with acted engines."""

from __future__ import annotations

import http.client
import io
import json
import logging
import pathlib
import sys
import threading
import unittest
import wave
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402

RATE = 22_050
SECONDS = 30


class Acted:
    """Records its requests, and answers as the test has set."""

    def __init__(self) -> None:
        self.languages: list[str | None] = []
        self.requests: list[dict[str, Any]] = []
        self.spoken: list[tuple[str, str | None, float]] = []
        self.stopped = threading.Event()
        self.may_continue = threading.Event()
        self.fails = False
        self.is_endless = False

    def transcribe(self, audio: bytes, language: str | None) -> str:
        self.languages.append(language)
        self.may_continue.wait(SECONDS) if language == "wait" else None
        with wave.open(io.BytesIO(audio)) as file:
            return f"{file.getnframes()} frames"

    def chat(self, request: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        self.requests.append(request)
        if self.fails:
            raise RuntimeError("secret words")
        if not request.get("stream"):
            take({"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hello."}}]})
            return
        words = iter(lambda: "x" * 4_096, None) if self.is_endless else iter(("Hel", "lo."))
        for word in words:
            if take({"object": "chat.completion.chunk", "choices": [{"delta": {"content": word}}]}):
                self.stopped.set()
                return

    def speak(self, text: str, voice: str | None, speed: float) -> tuple[int, bytes]:
        self.spoken.append((text, voice, speed))
        return RATE, b"\x01\x00" * 100


def wav(frames: int = 160) -> bytes:
    return server.wav(16_000, b"\0\0" * frames)


def form(fields: dict[str, bytes], boundary: str = "-x-") -> tuple[bytes, dict[str, str]]:
    """As httpx writes it."""
    body = b""
    for name, value in fields.items():
        more = '; filename="file.wav"\r\nContent-Type: audio/wav' if name == "file" else ""
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


class Case(unittest.TestCase):
    key = ""

    def setUp(self) -> None:
        logging.disable(logging.CRITICAL)
        self.engines = Acted()
        self.server = server.Server(("127.0.0.1", 0), self.engines, self.key)
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join, SECONDS)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.engines.may_continue.set)
        self.addCleanup(logging.disable, logging.NOTSET)

    def open(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self.server.server_address, timeout=SECONDS)
        self.addCleanup(connection.close)
        return connection

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, str, bytes]:
        connection = self.open()
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()


class Protocol(Case):
    def test_speech_becomes_text(self) -> None:
        body, headers = form({"model": b"any", "language": b"de", "response_format": b"json", "file": wav()})
        status, kind, answer = self.call("POST", "/v1/audio/transcriptions", body, headers)
        self.assertEqual((status, kind, json.loads(answer)), (200, "application/json", {"text": "160 frames"}))
        self.assertEqual(self.engines.languages, ["de"])
        body, headers = form({"response_format": b"text", "file": wav(7)})
        self.assertEqual(self.call("POST", "/v1/audio/transcriptions", body, headers)[2], b"7 frames")

    def test_samples_that_look_like_lines_arrive_whole(self) -> None:
        noise = server.wav(16_000, b"\r\n--\r\n\0\xff\r\xc3" * 500)
        body, headers = form({"file": noise})
        status, _, answer = self.call("POST", "/v1/audio/transcriptions", body, headers)
        self.assertEqual((status, json.loads(answer)["text"]), (200, f"{len(noise[44:]) // 2} frames"))

    def test_what_is_no_speech_is_refused(self) -> None:
        wrong = [form({"model": b"x"}), form({"file": b"no wave"}), form({"file": b""}), (b"{}", {"Content-Type": "application/json"})]
        for body, headers in wrong:
            self.assertEqual(self.call("POST", "/v1/audio/transcriptions", body, headers)[0], 400, body[:80])
        self.assertEqual(self.engines.languages, [])

    def test_a_conversation_is_streamed(self) -> None:
        request = {"model": "any", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        status, kind, answer = self.call("POST", "/v1/chat/completions", request)
        self.assertEqual((status, kind), (200, "text/event-stream"))
        events = [line.removeprefix("data: ") for line in answer.decode().split("\n\n") if line]
        self.assertEqual(events.pop(), "[DONE]")
        self.assertEqual("".join(json.loads(event)["choices"][0]["delta"]["content"] for event in events), "Hello.")

    def test_a_conversation_is_answered_whole(self) -> None:
        status, kind, answer = self.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual((status, kind), (200, "application/json"))
        self.assertEqual(json.loads(answer)["choices"][0]["message"]["content"], "Hello.")
        for messages in (None, [], "Hi", ["Hi"]):
            self.assertEqual(self.call("POST", "/v1/chat/completions", {"messages": messages})[0], 400, messages)

    def test_a_client_that_leaves_stops_the_model(self) -> None:
        self.engines.is_endless = True
        connection = self.open()
        request = {"stream": True, "messages": [{"role": "user", "content": "Go on"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(request))
        self.assertTrue(connection.getresponse().read(1))
        connection.close()
        self.assertTrue(self.engines.stopped.wait(SECONDS))

    def test_a_model_that_fails_has_a_status_and_tells_nothing(self) -> None:
        self.engines.fails = True
        for stream in (True, False):
            request = {"stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
            status, _, answer = self.call("POST", "/v1/chat/completions", request)
            self.assertEqual(status, 500)
            self.assertNotIn(b"secret", answer)

    def test_text_becomes_speech(self) -> None:
        status, kind, answer = self.call("POST", "/v1/audio/speech", {"input": "Hello.", "voice": "ash", "response_format": "mp3"})
        self.assertEqual((status, kind), (200, "audio/wav"), "the type says what it is")
        with wave.open(io.BytesIO(answer)) as file:
            self.assertEqual((file.getframerate(), file.getnchannels(), file.getnframes()), (RATE, 1, 100))
        _, kind, answer = self.call("POST", "/v1/audio/speech", {"input": "Hello.", "response_format": "pcm", "speed": 2})
        self.assertEqual((kind, len(answer)), (f"audio/L16; rate={RATE}; channels=1", 200))
        self.assertEqual(self.engines.spoken, [("Hello.", "ash", 1.0), ("Hello.", None, 2.0)])
        for wrong in ({}, {"input": " "}, {"input": "x" * 4_097}, {"input": "x", "speed": 9}, {"input": "x", "speed": True}, []):
            self.assertEqual(self.call("POST", "/v1/audio/speech", wrong)[0], 400, wrong)

    def test_bodies_have_bounds(self) -> None:
        for path, most in (("/v1/chat/completions", server.MOST_JSON_BYTES), ("/v1/audio/transcriptions", server.MOST_AUDIO_BYTES)):
            connection = self.open()
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", str(most + 1))
            connection.endheaders()
            self.assertEqual(connection.getresponse().status, 413, path)
        connection = self.open()
        connection.putrequest("POST", "/v1/chat/completions")
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 411)

    def test_more_than_can_wait_are_asked_to_try_again(self) -> None:
        body, headers = form({"language": b"wait", "file": wav()})
        waiting = []
        for _ in range(server.MOST_WAITING):
            connection = self.open()
            connection.request("POST", "/v1/audio/transcriptions", body, headers)
            waiting.append(connection)
        free = self.server.turns["transcribe"]._places
        done = threading.Event()
        while free._value > 0:
            self.assertFalse(done.wait(0.01))
        self.assertEqual(self.call("POST", "/v1/audio/transcriptions", body, headers)[0], 503)
        self.assertEqual(self.call("POST", "/v1/audio/speech", {"input": "Hi"})[0], 200, "another engine is free")
        self.engines.may_continue.set()
        self.assertEqual([connection.getresponse().status for connection in waiting], [200] * server.MOST_WAITING)

    def test_other_addresses_are_not_there(self) -> None:
        self.assertEqual(self.call("GET", "/")[0], 200)
        status, _, answer = self.call("GET", "/v1/models")
        self.assertEqual((status, len(json.loads(answer)["data"])), (200, 3))
        self.assertEqual(self.call("GET", "/v1/files")[0], 404)
        self.assertEqual(self.call("POST", "/v1/embeddings", {})[0], 404)


class WithKey(Case):
    key = "a-key-of-the-operator"

    def test_without_the_key_nothing_is_done(self) -> None:
        for sent in (None, "Bearer other", self.key, "Bearer "):
            headers = {"Authorization": sent} if sent else {}
            self.assertEqual(self.call("POST", "/v1/audio/speech", {"input": "Hi"}, headers)[0], 401, sent)
            self.assertEqual(self.call("GET", "/v1/models", None, headers)[0], 401, sent)
        self.assertEqual(self.engines.spoken, [])
        given = {"Authorization": f"Bearer {self.key}"}
        self.assertEqual(self.call("POST", "/v1/audio/speech", {"input": "Hi"}, given)[0], 200)
        self.assertEqual(self.call("GET", "/")[0], 200, "health needs no key")


if __name__ == "__main__":
    unittest.main()
