"""The newest context replaces the one before. Needs livekit-agents."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from livekit.agents import llm
except ImportError as missing:
    raise unittest.SkipTest("livekit-agents is not installed; `make test-voice-agent` installs it") from missing

from spoken import replace_context  # noqa: E402


class TestContext(unittest.TestCase):
    def test_the_model_reads_the_newest_context_only(self):
        chat = llm.ChatContext.empty()
        chat.add_message(role="user", content="hello")
        for version in range(1, 9):
            replace_context(chat, version, f"state {version}")
        self.assertEqual([item.text_content for item in chat.items], [
            "hello", "The state of the application (version 8): state 8"])


if __name__ == "__main__":
    unittest.main()
