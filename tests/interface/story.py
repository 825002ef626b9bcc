"""The story with the client of openapi-python-client. Usage: story.py SERVER"""

import sys
from base64 import urlsafe_b64encode

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ensemble_client import AuthenticatedClient, Client
from ensemble_client.api.accounts import create_challenge, sign_in
from ensemble_client.api.messages import append_message, list_messages
from ensemble_client.api.sessions import create_session, get_session, list_sessions
from ensemble_client.models import AppendMessage, CreateSession, Message, MessagePage, Problem, Session, SessionPage, SignIn


def text(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def main(server):
    client = Client(base_url=server)
    key = Ed25519PrivateKey.generate()
    public = text(key.public_key().public_bytes_raw())
    challenge = create_challenge.sync(client=client).challenge
    signature = text(key.sign(f"ensemble-auth-v1\n{server}\n{public}\n{challenge}".encode()))
    body = SignIn(public_key=public, challenge=challenge, signature=signature, origin=server)
    client = AuthenticatedClient(base_url=server, token=sign_in.sync(client=client, body=body).token)
    session = create_session.sync(client=client, body=CreateSession(metadata="AQID", encryption_key="AQID"))
    assert isinstance(session, Session), session
    page = list_sessions.sync(client=client)
    assert isinstance(page, SessionPage) and [one.id for one in page.sessions] == [session.id], page
    sent = append_message.sync(session.id, client=client, body=AppendMessage(content="AQID", local_id="1"))
    assert isinstance(sent, Message) and sent.seq == 1, sent
    page = list_messages.sync(session.id, client=client)
    assert isinstance(page, MessagePage) and [one.content for one in page.messages] == ["AQID"], page
    problem = get_session.sync("01900000-0000-7000-8000-000000000000", client=client)
    assert isinstance(problem, Problem) and problem.code == "NOT_FOUND", problem


main(sys.argv[1])
