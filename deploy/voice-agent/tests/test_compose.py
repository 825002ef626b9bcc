"""Compose gives the agent its own variables and no secret of another service. Needs no library."""

import re
import unittest
from pathlib import Path

AGENT = Path(__file__).resolve().parents[1]
ROOT = AGENT.parents[1]


class TestCompose(unittest.TestCase):
    def setUp(self):
        compose = (ROOT / "docker-compose.yml").read_text()
        self.service = re.search(r"\n  voice-agent:.*\n((?:    .*\n|\n)+)", compose)[1]
        self.variables = set(re.findall(r"^      ([A-Z_]+): ", self.service, re.M))

    def test_no_file_of_variables_and_no_secret_of_others(self):
        for other in ("*service", "*environment", "env_file", "INTERNAL_TOKEN", "TOOL_BRIDGE_API_KEY", "DATABASE"):
            self.assertNotIn(f"{other}", re.sub(r"#.*", "", self.service), other)
        self.assertEqual(re.findall(r"secrets-[a-z-]+", self.service), ["secrets-voice-agent"])

    def test_every_variable_that_the_agent_reads_is_passed_and_listed(self):
        sources = "".join(path.read_text() for path in AGENT.glob("*.py") if not path.name.startswith("e2e"))
        read = set(re.findall(r'"((?:VOICE|LIVEKIT)_[A-Z_]+)"', sources)) - {"VOICE_AGENT_HOST", "VOICE_AGENT_PORT"}
        read |= {f"VOICE_{role}{of}" for role in ("STT", "LLM", "TTS", "REALTIME") for of in ("", "_BASE_URL", "_API_KEY")}
        read |= {"VOICE_VAD", "VOICE_TTS_VOICE", "VOICE_REALTIME_VOICE", "OPENAI_API_KEY", "OPENAI_BASE_URL"}
        self.assertEqual(read - self.variables, set())
        listed = (ROOT / ".env.example").read_text()
        own = {name for name in self.variables if name.startswith(("VOICE_", "OPENAI_"))}
        self.assertEqual([name for name in sorted(own) if f"\n#{name}=" not in listed], [])


if __name__ == "__main__":
    unittest.main()
