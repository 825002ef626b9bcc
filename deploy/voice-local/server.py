"""Speech recognition, a language model and speech on this machine, by OpenAI's protocol, so that the voice agent talks without any account.

    POST /v1/audio/transcriptions   a WAV file (multipart form) → {"text"}
    POST /v1/chat/completions       whole, or streamed as Server-Sent Events
    POST /v1/audio/speech           {"input", "voice", "speed"} → WAV, or samples with `response_format: pcm`
    GET  /v1/models, GET /          the models; 200 once they are loaded

It knows no model: `engines.py` has them. Run it: `python server.py`. VOICE_LOCAL_HOST and VOICE_LOCAL_PORT say where, VOICE_LOCAL_API_KEY
what callers have to send as bearer (empty: nothing).
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import os
import signal
import sys
import threading
import time
import wave
from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

log = logging.getLogger("voice-local")

# Half a minute of 48 kHz stereo, and more: an utterance.
MOST_AUDIO_BYTES = 16 << 20
# A conversation with its context.
MOST_JSON_BYTES = 2 << 20
# What is read out at once.
MOST_SPOKEN = 4_096
# A client that sends nothing for this long is cut off.
SILENCE_SECONDS = 60
# Requests of one kind that wait for the processor; more are refused with a request to try again.
MOST_WAITING = 8

MODELS = ("whisper-tiny.en", "smollm2-135m-instruct", "piper-en-us-joe")


class Engines(Protocol):
    """The three models. They are called by one thread at a time each."""

    def transcribe(self, audio: bytes, language: str | None) -> str: ...

    def chat(self, request: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        """Gives `take` the chunks of a streamed completion, or one whole completion. It stops when `take` returns true."""

    def speak(self, text: str, voice: str | None, speed: float) -> tuple[int, bytes]:
        """The sample rate, and samples of 16 bits of one channel."""


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Turns:
    """One request after the other for an engine, and a bound for how many wait."""

    def __init__(self) -> None:
        self._lock, self._places = threading.Lock(), threading.BoundedSemaphore(MOST_WAITING)

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            raise Refused(503, "Too many requests wait. Try again in a moment.")
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._places.release()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], engines: Engines, key: str = "") -> None:
        self.engines, self.key = engines, key
        self.turns = {name: Turns() for name in ("transcribe", "chat", "speak")}
        super().__init__(address, Handler)

    def handle_error(self, *_: object) -> None:
        """Of a connection, outside of a request: a client that has gone is no fault."""
        log.debug("a connection broke", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_SECONDS
    server: Server

    def do_GET(self) -> None:
        if self.path == "/":
            return self._json(200, {"status": "ok"})
        self._guarded(self._models)

    def do_POST(self) -> None:
        calls = {
            "/v1/audio/transcriptions": self._transcribe,
            "/v1/chat/completions": self._chat,
            "/v1/audio/speech": self._speak,
        }
        self._guarded(calls.get(self.path.partition("?")[0], self._unknown))

    def _guarded(self, call: Callable[[], None]) -> None:
        self._begun = False
        try:
            self._allow()
            call()
        except Refused as refused:
            self._refuse(refused.status, str(refused))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        except Exception:
            # What was said is in no log, and a traceback has no values.
            log.exception("%s failed", self.path)
            self._refuse(500, "The model failed.")

    def _allow(self) -> None:
        sent = self.headers.get("Authorization", "")
        if self.server.key and not hmac.compare_digest(sent.encode(), f"Bearer {self.server.key}".encode()):
            raise Refused(401, "The key is not the one of VOICE_LOCAL_API_KEY.")

    def _unknown(self) -> None:
        raise Refused(404, "There is no such address.")

    def _models(self) -> None:
        if self.path != "/v1/models":
            self._unknown()
        self._json(200, {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "local"} for name in MODELS]})

    def _transcribe(self) -> None:
        form = self._form()
        audio = form.get("file")
        if not audio:
            raise Refused(400, "The form has no `file`.")
        try:
            with wave.open(io.BytesIO(audio)) as file:
                seconds = file.getnframes() / file.getframerate()
        except (wave.Error, EOFError, ZeroDivisionError):
            raise Refused(400, "The file is no WAV file.") from None
        language = form.get("language", b"").decode(errors="replace") or None
        begun = time.monotonic()
        with self.server.turns["transcribe"]:
            text = self.server.engines.transcribe(audio, language)
        log.info("understood %.1f s of speech in %.2f s", seconds, time.monotonic() - begun)
        if form.get("response_format") == b"text":
            return self._send(200, "text/plain; charset=utf-8", text.encode())
        self._json(200, {"text": text})

    def _chat(self) -> None:
        request = self._object()
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise Refused(400, "`messages` is no list of messages.")
        begun = time.monotonic()
        with self.server.turns["chat"]:
            if request.get("stream") is True:
                self._stream(request)
            else:
                answers: list[dict[str, Any]] = []
                self.server.engines.chat(request, lambda answer: answers.append(answer) is not None)
                self._json(200, answers[0])
        log.info("answered %d messages in %.2f s", len(messages), time.monotonic() - begun)

    def _stream(self, request: dict[str, Any]) -> None:
        """The head goes out with the first chunk, so that a request that the model refuses has a status. A client that has gone stops it."""
        gone = False

        def take(chunk: dict[str, Any]) -> bool:
            nonlocal gone
            try:
                if not self._begun:
                    self._head(200, "text/event-stream", None)
                self._chunk(f"data: {json.dumps(chunk)}\n\n".encode())
            except OSError:
                gone = True
            return gone

        self.server.engines.chat(request, take)
        if gone:
            self.close_connection = True
            return
        if not self._begun:
            raise Refused(500, "The model said nothing.")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _speak(self) -> None:
        request = self._object()
        text, speed = request.get("input"), request.get("speed", 1.0)
        if not isinstance(text, str) or not text.strip() or len(text) > MOST_SPOKEN:
            raise Refused(400, f"`input` is a text of 1 to {MOST_SPOKEN} characters.")
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.25 <= speed <= 4:
            raise Refused(400, "`speed` is 0.25 to 4.")
        voice = request.get("voice")
        begun = time.monotonic()
        with self.server.turns["speak"]:
            rate, samples = self.server.engines.speak(text, voice if isinstance(voice, str) else None, float(speed))
        log.info("spoke %.1f s in %.2f s", len(samples) / 2 / rate, time.monotonic() - begun)
        if request.get("response_format") == "pcm":
            return self._send(200, f"audio/L16; rate={rate}; channels=1", samples)
        self._send(200, "audio/wav", wav(rate, samples))

    def _object(self) -> dict[str, Any]:
        try:
            body = json.loads(self._body(MOST_JSON_BYTES))
        except ValueError:
            raise Refused(400, "The body is not JSON.") from None
        if not isinstance(body, dict):
            raise Refused(400, "The body is no object.")
        return body

    def _form(self) -> dict[str, bytes]:
        kind = self.headers.get("Content-Type", "")
        body = self._body(MOST_AUDIO_BYTES)
        form = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
        if not form.is_multipart():
            raise Refused(400, "The body is no multipart form.")
        fields = {}
        for part in form.iter_parts():
            name = Message.get_param(part, "name", header="Content-Disposition")
            content = part.get_payload(decode=True)
            if isinstance(name, str) and isinstance(content, bytes):
                fields[name] = content
        return fields

    def _body(self, most: int) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            # What follows looks like the next request.
            self.close_connection = True
            raise Refused(411, "The request has no length.")
        if int(length) > most:
            self.close_connection = True
            raise Refused(413, f"The body is longer than {most} bytes.")
        return self.rfile.read(int(length))

    def _json(self, status: int, body: object) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _refuse(self, status: int, message: str) -> None:
        if self._begun:
            self.close_connection = True
            return
        # The body may not have been read.
        self.close_connection = True
        self._json(status, {"error": {"message": message, "type": "invalid_request_error", "code": status}})

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self._head(status, kind, len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, length: int | None) -> None:
        self._begun = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        """One of HTTP's chunks; an empty one is the last."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_: object) -> None:
        """Requests are logged by what they did."""


def wav(rate: int, samples: bytes) -> bytes:
    whole = io.BytesIO()
    with wave.open(whole, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)
    return whole.getvalue()


def main() -> None:
    from engines import Local

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    log.setLevel(logging.INFO)
    begun = time.monotonic()
    engines = Local(os.environ)
    address = (os.environ.get("VOICE_LOCAL_HOST", "127.0.0.1"), int(os.environ.get("VOICE_LOCAL_PORT", "8096")))
    server = Server(address, engines, os.environ.get("VOICE_LOCAL_API_KEY", ""))
    log.info("loaded in %.1f s; listening at %s:%d", time.monotonic() - begun, *server.server_address[:2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.serve_forever()


if __name__ == "__main__":
    main()
