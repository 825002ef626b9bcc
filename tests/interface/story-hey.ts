// The story with the client of @hey-api/openapi-ts. Usage: story SERVER
import assert from "node:assert/strict";

import { appendMessage, createChallenge, createSession, followMessages, getSession, listMessages, listSessions, signIn } from "./client";
import { client } from "./client/client.gen";
import { signer } from "./sign";

const server = process.argv[2] ?? "";
const { publicKey, signed } = signer(server);
client.setConfig({ baseUrl: server });
const { data: challenged } = await createChallenge();
assert(challenged);
const { challenge } = challenged;
const { data: signedIn } = await signIn({ body: { publicKey, challenge, signature: signed(challenge), origin: server } });
assert(signedIn);
client.setConfig({ auth: signedIn.token });
const { data: session } = await createSession({ body: { metadata: "AQID", encryptionKey: "AQID" } });
assert(session);
const { data: list } = await listSessions();
assert.deepEqual(list?.sessions.map(({ id }) => id), [session.id]);
const path = { id: session.id };
assert((await appendMessage({ path, body: { content: "AQID", localId: "1" } })).data);
const { data: page } = await listMessages({ path });
assert.deepEqual(page?.messages.map(({ content }) => content), ["AQID"]);
// What the types say of an event is what comes.
const { stream } = await followMessages({ path, query: { after: 0 } });
for await (const event of stream) {
  if ("content" in event) {
    assert.equal(event.content, "AQID");
    break;
  }
}
const { error } = await getSession({ path: { id: "01900000-0000-7000-8000-000000000000" } });
assert.equal(error?.code, "NOT_FOUND");
process.exit(0);
