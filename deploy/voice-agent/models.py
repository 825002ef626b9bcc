"""The models that the configuration names: `VOICE_STT=openai:gpt-4o-transcribe` is class STT of livekit.plugins.openai with
that model; a value without a colon goes to LiveKit Inference as it is.

Each role may have an address and a key of its own (`VOICE_STT_BASE_URL`, `VOICE_STT_API_KEY`), so that speech recognition,
language model and speech may be three servers. Without them a plugin reads its vendor's variables.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

ROLES = ("STT", "LLM", "TTS", "VAD", "REALTIME")
# The class of a plugin for a role that is not named like the role.
CLASSES = {"REALTIME": "RealtimeModel"}

# What decides that the person has finished: the library's model, silence, or speech recognition.
TURNS = ("model", "vad", "stt")
# Seconds.
ENDPOINT_MAX = 1.2


class NotUsable(Exception):
    """The configuration names no model, or one that cannot be made. `code` says which, for the gateway."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def load_plugins(env: Mapping[str, str] = os.environ) -> None:
    """Plugins register themselves when they are imported, which only the main thread may do."""
    for role in ROLES:
        plugin, colon, _ = env.get(f"VOICE_{role}", "").partition(":")
        if colon or (plugin and role == "VAD"):
            importlib.import_module(f"livekit.plugins.{plugin}")
            if role == "REALTIME":
                importlib.import_module(f"livekit.plugins.{plugin}.realtime")


def session_models(language: str | None, env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The arguments of an AgentSession. What is not set is left out: without `vad` the session uses the detector that comes
    with the library, while `vad=None` would leave recognition that does not stream without any."""
    realtime = model("REALTIME", language, env)
    made = {"llm": realtime or model("LLM", language, env)}
    if realtime is None:
        made["stt"] = model("STT", language, env)
    made["tts"] = model("TTS", language, env)
    made["vad"] = model("VAD", language, env)
    chosen = {name: one for name, one in made.items() if one is not None}
    if "llm" not in chosen:
        raise NotUsable("no_models", "VOICE_LLM or VOICE_REALTIME must name a model in mode models")
    return chosen


def turns(env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """When the person has finished speaking: the `turn_handling` of an AgentSession. The library would wait for up to 2.5 s where
    its model is not sure, which is most of the time that a person waits for an answer."""
    try:
        delays = {"min_delay": seconds(env.get("VOICE_ENDPOINT_MIN")), "max_delay": seconds(env.get("VOICE_ENDPOINT_MAX")) or ENDPOINT_MAX}
    except ValueError:
        raise NotUsable("turns_not_usable", "VOICE_ENDPOINT_MIN and VOICE_ENDPOINT_MAX must be seconds above zero") from None
    endpointing = {name: delay for name, delay in delays.items() if delay is not None}
    if endpointing.get("min_delay", 0) > endpointing["max_delay"]:
        raise NotUsable("turns_not_usable", "VOICE_ENDPOINT_MIN must not be above VOICE_ENDPOINT_MAX")
    by = env.get("VOICE_TURN") or "model"
    if by not in TURNS:
        raise NotUsable("turns_not_usable", f"VOICE_TURN must be one of {', '.join(TURNS)}")
    return {"endpointing": endpointing} | ({} if by == "model" else {"turn_detection": by})


def seconds(text: str | None) -> float | None:
    if not text:
        return None
    value = float(text)
    if not 0 < value < 60:
        raise ValueError(text)
    return value


def model(role: str, language: str | None, env: Mapping[str, str] = os.environ) -> Any:
    """The model of a role, or None when none is named."""
    name = env.get(f"VOICE_{role}", "")
    if not name:
        return None
    try:
        return make(role, name, language, env)
    except Exception as error:
        # The text may contain a key, so it is not passed on.
        raise NotUsable(f"{role.lower()}_not_usable", f"VOICE_{role}={name}: {type(error).__name__}") from error


def make(role: str, name: str, language: str | None, env: Mapping[str, str]) -> Any:
    plugin, _, model_name = name.partition(":")
    if role == "VAD":
        return importlib.import_module(f"livekit.plugins.{plugin}").VAD.load()
    if not model_name:
        if role in ("LLM", "REALTIME"):
            return name
        made = getattr(importlib.import_module("livekit.agents.inference"), role)
        return made(**arguments(made, role, name, language, env))
    module = f"livekit.plugins.{plugin}" + (".realtime" if role == "REALTIME" else "")
    made = getattr(importlib.import_module(module), CLASSES.get(role, role))
    return made(**arguments(made, role, model_name, language, env))


def arguments(made: Any, role: str, model_name: str, language: str | None, env: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a plugin's class, as far as it takes them: plugins differ in whether they take a language or voice."""
    taken = inspect.signature(made).parameters
    wanted: dict[str, Any] = {
        "model": model_name,
        "base_url": env.get(f"VOICE_{role}_BASE_URL"),
        "api_key": env.get(f"VOICE_{role}_API_KEY"),
    }
    if role in ("STT", "TTS"):
        wanted["language"] = language
    if role == "STT" and not language:
        # Without a language some plugins take everything for English.
        wanted["detect_language"] = True
    if role in ("TTS", "REALTIME"):
        wanted["voice"] = voice(env.get(f"VOICE_{role}_VOICE", ""), language)
    return {name: value for name, value in wanted.items() if value and name in taken}


def voice(setting: str, language: str | None) -> str | None:
    """`de=anna,en=alloy,marin`: the voice of the language (`de-AT`, then `de`), else the one without a language."""
    voices = {}
    for one in filter(None, (part.strip() for part in setting.split(","))):
        before, equals, after = one.partition("=")
        voices[before.lower() if equals else ""] = after if equals else before
    tag = (language or "").lower()
    return voices.get(tag) or voices.get(tag.partition("-")[0]) or voices.get("")
