"""Calls of participants are refused, and only the session's own addresses are fetched. Needs no library."""

import sys
import unittest
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from addresses import Addresses, Callers  # noqa: E402

SESSION = "http://gateway.example:8085/agent/v1/sessions/01890a5d-ac96-774b-bcce-b302099a8057"


class TestCallers(unittest.TestCase):
    def test_the_server_calls_under_a_random_uuid(self):
        callers = Callers("human_1")
        callers.joined("human_1")
        self.assertTrue(callers.is_server(str(uuid.uuid4())))

    def test_participants_are_refused_also_before_they_are_seen_and_after_they_left(self):
        callers = Callers("human_1")
        self.assertFalse(callers.is_server("human_1"))
        guest = str(uuid.uuid4())
        callers.joined(guest)
        for caller in (guest, "human_2", "agent-AJ_x", "", guest.upper(), "{" + str(uuid.uuid4()) + "}"):
            self.assertFalse(callers.is_server(caller), caller)


class TestAddresses(unittest.TestCase):
    def test_the_context_and_the_texts_of_this_session(self):
        addresses = Addresses(SESSION + "/context")
        self.assertTrue(addresses.allows(SESSION + "/context"))
        self.assertTrue(addresses.allows(SESSION + "/texts/12"))

    def test_every_other_address_is_refused(self):
        addresses = Addresses(SESSION + "/context")
        others = [
            "http://evil.example/", "http://169.254.169.254/latest", "file:///etc/passwd", "", None, 7, ["x"],
            SESSION, SESSION + "/", SESSION + "/events", SESSION + "/texts/", SESSION + "/texts/1/../../x",
            SESSION + "/texts/1?x", SESSION + "/texts/1#x", SESSION + "/texts/1\n", SESSION + "/texts/١",
            SESSION + "/context?x=1", SESSION + "/context/../events", SESSION + "/contexts",
            SESSION.replace("gateway.example", "gateway.example@evil.example") + "/context",
            SESSION.replace("8057", "8058") + "/context",
            SESSION.replace("gateway.example", "gatewayxexample") + "/texts/1",
            "http://gateway.example:8085.evil.example/agent/v1/sessions/x/texts/1",
        ]
        for other in others:
            self.assertFalse(addresses.allows(other), other)

    def test_without_an_address_of_the_gateway_nothing_is_fetched(self):
        for nothing in (None, ""):
            self.assertFalse(Addresses(nothing).allows("/texts/1"))
            self.assertFalse(Addresses(nothing).allows(""))


if __name__ == "__main__":
    unittest.main()
