"""The models that the configuration names: `VOICE_STT=openai:gpt-4o-transcribe` and so on."""

from __future__ import annotations

import importlib
import os
from typing import Any

ROLES = ("STT", "LLM", "TTS", "VAD")


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
