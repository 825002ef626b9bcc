// The story with openapi-fetch and the types of openapi-typescript. Usage: story SERVER
import assert from "node:assert/strict";
import createClient from "openapi-fetch";

import type { paths } from "./openapi.d.ts";
import { signer } from "./sign";

const server = process.argv[2] ?? "";
const { publicKey, signed } = signer(server);
const anonymous = createClient<paths>({ baseUrl: server });
const { data: challenged } = await anonymous.POST("/v1/auth/challenge");
assert(challenged);
const { challenge } = challenged;
const body = { publicKey, challenge, signature: signed(challenge), origin: server };
const { data: signedIn } = await anonymous.POST("/v1/auth", { body });
assert(signedIn);
const api = createClient<paths>({ baseUrl: server, headers: { Authorization: `Bearer ${signedIn.token}` } });
const { data: session } = await api.POST("/v1/sessions", { body: { metadata: "AQID", encryptionKey: "AQID" } });
assert(session);
const { data: list } = await api.GET("/v1/sessions", { params: { query: { limit: 10 } } });
assert.deepEqual(list?.sessions.map(({ id }) => id), [session.id]);
const path = { id: session.id };
const { data: sent } = await api.POST("/v3/sessions/{id}/messages", { params: { path }, body: { content: "AQID", localId: "1" } });
assert(sent);
const { data: page } = await api.GET("/v3/sessions/{id}/messages", { params: { path } });
assert.deepEqual(page?.messages.map(({ content }) => content), ["AQID"]);
const { error } = await api.GET("/v1/sessions/{id}", { params: { path: { id: "01900000-0000-7000-8000-000000000000" } } });
assert.equal(error?.code, "NOT_FOUND");
