// How a call is written, and what does not compile.

import assert from "node:assert/strict";
import test from "node:test";
import { Client, Refused } from "@ensemble/client";

/** A client of a server that answers everything, and the requests that it received. */
function client(): { client: Client; sent: { url: string; init: RequestInit }[] } {
  const sent: { url: string; init: RequestInit }[] = [];
  const answer: typeof fetch = (url, init = {}) => {
    sent.push({ url: String(url), init });
    return Promise.resolve(Response.json({}));
  };
  return { client: new Client({ base: "https://host.example/prefix/", credential: "t", fetch: answer }), sent };
}

test("a call is written with its parameters, headers and body", async () => {
  const { client: made, sent } = client();
  await made.call("DELETE", "/v1/sessions/{id}/shares/{userId}", { path: { id: "a/b ?#%", userId: "ü" } });
  await made.call("GET", "/v1/sessions", { query: { limit: 5, cursor: "a&b=c d" } });
  await made.call("GET", "/v1/sessions");
  const body = { userId: "u", accessLevel: "view" as const, encryptedKey: "k" };
  await made.call("POST", "/v1/sessions/{id}/shares", { path: { id: "s" }, body, headers: { "X-More": "1" } });
  const urls = sent.map(({ url }) => url.replace("https://host.example/prefix", ""));
  assert.deepEqual(urls, [
    "/v1/sessions/a%2Fb%20%3F%23%25/shares/%C3%BC",
    "/v1/sessions?limit=5&cursor=a%26b%3Dc+d",
    "/v1/sessions",
    "/v1/sessions/s/shares",
  ]);
  const [, read, , written] = sent.map(({ init }) => init);
  const headers = (init?: RequestInit) =>
    ["authorization", "content-type", "x-more"].map((name) => new Headers(init?.headers).get(name));
  assert.deepEqual([read?.method, read?.body, headers(read)], ["GET", undefined, ["Bearer t", null, null]]);
  assert.deepEqual(
    [written?.method, written?.body, headers(written)],
    ["POST", JSON.stringify(body), ["Bearer t", "application/json", "1"]],
  );
});

test("an id that leads to another path is refused before anything is sent", async () => {
  const { client: made, sent } = client();
  for (const id of [".", ".."]) await assert.rejects(made.call("DELETE", "/v1/sessions/{id}", { path: { id } }), Refused);
  assert.deepEqual(sent, []);
});

/** How many seconds long work waits after an answer with these fields. */
async function waits(t: test.TestContext, left: string, policy: string): Promise<number> {
  const headers = { ratelimit: left, "ratelimit-policy": policy };
  const answer: typeof fetch = () => Promise.resolve(Response.json({}, { headers }));
  const made = new Client({ base: "https://host.example", credential: "t", fetch: answer });
  await made.call("GET", "/v1/sessions");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let [isOver, seconds] = [false, 0];
  const over = made.leaveRoom().then(() => (isOver = true));
  const step = async () => {
    for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    return isOver;
  };
  for (; !(await step()) && seconds < 600; seconds++) t.mock.timers.tick(1_000);
  t.mock.timers.reset();
  await over;
  return seconds;
}

test("long work leaves a quarter of the account's requests to other programs", async (t) => {
  assert.equal(await waits(t, '"account";r=150;t=45', '"account";q=600;w=60'), 0);
  assert.equal(await waits(t, '"account";r=50;t=55', '"account";q=600;w=60'), 10);
  assert.equal(await waits(t, '"sign-in";r=0;t=60', '"sign-in";q=60;w=60'), 0, "another limit");
  assert.equal(await waits(t, '"account";r=0;t=99999999', '"account";q=1;w=99999999'), 15, "no server makes it wait longer");
});

/** Checked by the compiler alone: nothing calls it. */
export async function compiled(made: Client): Promise<string> {
  // @ts-expect-error There is no such path.
  await made.call("GET", "/v1/session");
  // @ts-expect-error The path does not know this method.
  await made.call("PUT", "/v1/sessions/{id}", { path: { id: "s" } });
  // @ts-expect-error The id is missing.
  await made.call("GET", "/v1/sessions/{id}");
  // @ts-expect-error The user is missing.
  await made.call("DELETE", "/v1/sessions/{id}/shares/{userId}", { path: { id: "s" } });
  // @ts-expect-error An id is a text.
  await made.call("GET", "/v1/sessions/{id}", { path: { id: 1 } });
  // @ts-expect-error There is no such member of the query.
  await made.call("GET", "/v1/sessions", { query: { limits: 5 } });
  // @ts-expect-error The query has a number here.
  await made.call("GET", "/v1/sessions", { query: { limit: "5" } });
  // @ts-expect-error The body is missing.
  await made.call("POST", "/v1/sessions/{id}/shares", { path: { id: "s" } });
  // @ts-expect-error There is no such state.
  await made.call("PATCH", "/v1/sessions/{id}", { path: { id: "s" }, body: { status: "gone" } });
  // @ts-expect-error There is no such member of the body.
  await made.call("PATCH", "/v1/sessions/{id}", { path: { id: "s" }, body: { archive: true } });
  // @ts-expect-error A read has no body.
  await made.call("GET", "/v1/sessions/{id}", { path: { id: "s" }, body: {} });
  // @ts-expect-error The answer is a session, which has no name.
  return (await made.call("GET", "/v1/sessions/{id}", { path: { id: "s" } })).name;
}
