"""What is asked of plugins for a configuration and a language. Needs no library: the plugins are stand-ins."""

import sys
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import models  # noqa: E402


class Made:
    """A plugin's class that remembers what it was made with."""

    def __init__(self, *, model, language="en", detect_language=False, base_url=None, api_key=None, voice=None):
        self.__dict__.update(locals())


class WithoutLanguage:
    def __init__(self, *, model, voice="alloy"):
        self.model, self.voice = model, voice


class Broken:
    def __init__(self, *, model):
        raise ValueError("the key sk-secret is wrong")


class TestModels(unittest.TestCase):
    def setUp(self):
        plugin = types.ModuleType("livekit.plugins.standin")
        plugin.STT, plugin.LLM, plugin.TTS = Made, WithoutLanguage, Made
        realtime = types.ModuleType("livekit.plugins.standin.realtime")
        realtime.RealtimeModel = WithoutLanguage
        broken = types.ModuleType("livekit.plugins.broken")
        broken.STT = Broken
        for module in (plugin, realtime, broken):
            sys.modules[module.__name__] = module
            self.addCleanup(sys.modules.pop, module.__name__)
        self.env = {"VOICE_STT": "standin:ear", "VOICE_LLM": "standin:brain", "VOICE_TTS": "standin:mouth"}

    def test_what_is_not_set_is_left_out(self):
        self.assertEqual(sorted(models.session_models("en", self.env)), ["llm", "stt", "tts"])

    def test_the_end_of_a_turn_is_set_by_name_and_seconds(self):
        for env, wanted in [
            ({}, {"endpointing": {"max_delay": 1.2}}),
            ({"VOICE_TURN": "vad"}, {"endpointing": {"max_delay": 1.2}, "turn_detection": "vad"}),
            ({"VOICE_TURN": "model", "VOICE_ENDPOINT_MIN": "0.2", "VOICE_ENDPOINT_MAX": "0.4"}, {"endpointing": {"min_delay": 0.2, "max_delay": 0.4}}),
        ]:
            self.assertEqual(models.turns(env), wanted)
        for env in ({"VOICE_TURN": "manual"}, {"VOICE_ENDPOINT_MAX": "soon"}, {"VOICE_ENDPOINT_MIN": "0"}, {"VOICE_ENDPOINT_MIN": "1.3"}):
            with self.assertRaises(models.NotUsable) as refused:
                models.turns(env)
            self.assertEqual(refused.exception.code, "turns_not_usable")

    def test_language_and_voice_reach_recognition_and_speech(self):
        self.env["VOICE_TTS_VOICE"] = "de=anna,en=alloy,marin"
        made = models.session_models("de-AT", self.env)
        self.assertEqual((made["stt"].language, made["tts"].language, made["tts"].voice), ("de-AT", "de-AT", "anna"))
        self.assertFalse(made["stt"].detect_language)
        self.assertEqual(models.session_models("fr", self.env)["tts"].voice, "marin")
        self.assertTrue(models.session_models(None, self.env)["stt"].detect_language)

    def test_each_role_has_its_own_address_and_key(self):
        self.env |= {"VOICE_STT_BASE_URL": "http://ear/v1", "VOICE_TTS_BASE_URL": "http://mouth/v1", "VOICE_TTS_API_KEY": "k"}
        made = models.session_models("en", self.env)
        self.assertEqual((made["stt"].base_url, made["stt"].api_key), ("http://ear/v1", None))
        self.assertEqual((made["tts"].base_url, made["tts"].api_key), ("http://mouth/v1", "k"))
        self.assertEqual(made["llm"].model, "brain")

    def test_a_realtime_model_replaces_recognition_and_language_model(self):
        self.env |= {"VOICE_REALTIME": "standin:both", "VOICE_REALTIME_VOICE": "cedar"}
        made = models.session_models("en", self.env)
        self.assertEqual((made["llm"].model, made["llm"].voice, "stt" in made), ("both", "cedar", False))

    def test_no_model_and_a_model_that_cannot_be_made_have_a_code_and_no_secret(self):
        with self.assertRaises(models.NotUsable) as none:
            models.session_models("en", {})
        self.assertEqual(none.exception.code, "no_models")
        with self.assertRaises(models.NotUsable) as bad:
            models.session_models("en", self.env | {"VOICE_STT": "broken:x"})
        self.assertEqual(bad.exception.code, "stt_not_usable")
        self.assertNotIn("secret", str(bad.exception))


if __name__ == "__main__":
    unittest.main()
