// Calls against a server that fails in every way: tokens, repetitions, deadlines, problems.

import assert from "node:assert/strict";
import test from "node:test";
import { Client, DeviceCredential, Distrust, isNotFound, isProblem, NoAnswer, Problem, refOf } from "@ensemble/client";
import { SigningKey } from "@ensemble/client/lists";
import { json, problem, scripted, token, type Handler, type Scripted } from "./scripted.js";

async function using(handler: Handler, run: (server: Scripted) => Promise<void>): Promise<void> {
  const server = await scripted(handler);
  try {
    await run(server);
  } finally {
    await server.close();
  }
}

/** Signs in with the tokens `t1`, `t2`, …, and hands everything else on. */
function signingIn(rest: Handler): Handler {
  let count = 0;
  return (request, response) => {
    if (request.path === "/v1/auth/challenge") return json(response, 200, { challenge: "c", expiresAt: "", publicOrigins: [] });
    if (request.path !== "/v1/auth") return rest(request, response);
    json(response, 200, { success: true, token: token(`t${++count}`), userId: "u", expiresAt: "2030-01-01T00:00:00Z" });
  };
}

const bearer = (headers: { authorization?: string | undefined }) => headers.authorization?.split(".").at(-1);
const id = "01890a5d-ac96-774b-bcce-b302099a8057";
const path = { path: { id } };
const device = async () => new DeviceCredential(await SigningKey.generate());
const message = { content: "AAAA", localId: "m" };

test("calls that wait share one sign-in, and a refused token is renewed once", async () => {
  const handler = signingIn((request, response) =>
    bearer(request.headers) === "t1"
      ? problem(response, 401, "UNAUTHENTICATED")
      : json(response, 200, { id: bearer(request.headers) }),
  );
  await using(handler, async ({ url, requests }) => {
    const client = new Client({ base: url, credential: await device() });
    const all = await Promise.all(Array.from({ length: 10 }, () => client.call("GET", "/v1/account")));
    assert.ok(all.every((account) => account.id === "t2"));
    assert.equal(requests.filter(({ path }) => path === "/v1/auth").length, 2, "one before, one for the ten that were refused");
    await client.call("GET", "/v1/account");
    assert.equal(requests.filter(({ path }) => path === "/v1/auth").length, 2, "the token is kept");
    const signIn = JSON.parse(requests.find(({ path }) => path === "/v1/auth")?.body ?? "{}");
    assert.deepEqual([signIn.origin, signIn.create], [url, false]);
  });
  await using(
    signingIn((_, response) => problem(response, 401, "UNAUTHENTICATED")),
    async ({ url, requests }) => {
      const client = new Client({ base: url, credential: await device() });
      await assert.rejects(client.call("GET", "/v1/account"), { code: "UNAUTHENTICATED" });
      assert.equal(requests.filter(({ path }) => path === "/v1/account").length, 2, "not for ever");
    },
  );
});

test("what is signed carries the server's time, unless the server names another day", async (t) => {
  const noon = Date.parse("2026-03-26T12:00:00Z");
  const minute = 60_000;
  for (const [ahead, corrected] of [
    [10 * minute, 10 * minute],
    [-10 * minute, -10 * minute],
    [2_000, 0],
    [25 * 60 * minute, 0],
    [-25 * 60 * minute, 0],
  ] as const) {
    const handler = signingIn((_, response) => json(response, 200, {}));
    // The server makes its tokens by its own clock, and answers when the clock of this device is back.
    const byItsClock: Handler = (request, response) => {
      t.mock.timers.setTime(noon);
      handler(request, response);
      t.mock.timers.setTime(noon + ahead);
    };
    t.mock.timers.enable({ apis: ["Date"], now: noon + ahead });
    await using(byItsClock, async ({ url }) => {
      const credential = await device();
      assert.equal(credential.now(), noon + ahead, "nothing is measured yet");
      await credential.signIn(new Client({ base: url, credential }));
      assert.equal(credential.now(), noon + ahead - corrected, String(ahead));
      const earlier = Math.abs(ahead) > 5_000 ? Math.min(noon, noon + ahead) : noon + ahead;
      assert.deepEqual(credential.clocks(), [earlier, Math.max(noon + ahead, credential.now())], String(ahead));
    });
    t.mock.timers.reset();
  }
});

test("a message is repeated with its id until it arrives, and other writes are not", async () => {
  let failures = 0;
  const handler: Handler = ({ path }, response) => {
    if (path.includes("messages") && ++failures <= 3) {
      if (failures === 1) return void response.destroy();
      return failures === 2
        ? problem(response, 503, "UNAVAILABLE", { "retry-after": "0" })
        : void response.writeHead(502).end("bad gateway");
    }
    if (path.includes("messages")) return json(response, 201, { seq: 7 });
    response.destroy();
  };
  await using(handler, async ({ url, requests }) => {
    const client = new Client({ base: url, credential: "t" });
    const sent = await client.call("POST", "/v3/sessions/{id}/messages", { ...path, body: message });
    assert.equal(sent.seq, 7);
    assert.deepEqual(
      requests.map(({ body }) => JSON.parse(body)),
      [message, message, message, message],
    );
    [failures, requests.length] = [0, 0];
    await client.call("POST", "/v3/sessions/{id}/messages/batch", { ...path, body: { messages: [message] } });
    assert.equal(requests.length, 4);
    requests.length = 0;
    const body = { machineId: "m" };
    await assert.rejects(
      client.call("POST", "/v1/auth/tokens", { body }),
      (error) => error instanceof NoAnswer && error.mayHaveHappened,
    );
    assert.equal(requests.length, 1);
    await assert.rejects(
      client.call("PATCH", "/v1/sessions/{id}", { ...path, body: { archived: true, expectedVersion: 1 } }),
      NoAnswer,
    );
    assert.equal(requests.length, 2, "what replaces a version is sent once");
  });
});

test("a problem has code, text, fields and pause; something else is not the service", async () => {
  const more = { requestId: "r", errors: [{ pointer: "/x", detail: "is wrong" }], current: 3 };
  const handler: Handler = ({ path }, response) =>
    path === "/v1/account"
      ? problem(response, 409, "VERSION_MISMATCH", { "retry-after": "9" }, more)
      : void response.writeHead(404).end("<html>");
  await using(handler, async ({ url }) => {
    const client = new Client({ base: `${url}/`, credential: "t" });
    const error = await client.call("GET", "/v1/account").catch((caught: unknown) => caught);
    assert.ok(error instanceof Problem);
    const { message: text, code, status, retryAfter, requestId, fields, extra } = error;
    assert.deepEqual(
      [text, code, status, retryAfter, requestId],
      ["What happened and what to do.", "VERSION_MISMATCH", 409, 9, "r"],
    );
    assert.deepEqual([fields, extra], [more.errors, { current: 3 }]);
    await assert.rejects(client.call("GET", "/v1/machines"), { code: "FOREIGN", status: 404 });
  });
});

test("the pause that the server asks for is kept, and the whole call has an end", async () => {
  let [count, pause] = [0, "1"];
  const handler: Handler = (_, response) =>
    ++count === 1 ? problem(response, 429, "RATE_LIMITED", { "retry-after": pause }) : json(response, 200, {});
  await using(handler, async ({ url }) => {
    const client = new Client({ base: url, credential: "t" });
    const begun = performance.now();
    await client.call("GET", "/v1/account");
    assert.ok(performance.now() - begun >= 1_000);
    [count, pause] = [0, "60"];
    const short = new Client({ base: url, credential: "t", retryFor: 30_000 });
    await assert.rejects(short.call("GET", "/v1/account"), (error) => isProblem(error, "RATE_LIMITED"));
  });
});

test("an answer that does not come has a deadline, and a call can be given up", async () => {
  await using(
    () => undefined,
    async ({ url }) => {
      // An attempt can end before it has reached a busy server.
      let attempts = 0;
      const counted: typeof fetch = (input, init) => {
        attempts++;
        return fetch(input, init);
      };
      const client = new Client({ base: url, credential: "t", answerWithin: 50, retryFor: 3_000, fetch: counted });
      await assert.rejects(client.call("GET", "/v1/account"), { name: "NoAnswer", why: "timeout" });
      assert.ok(attempts >= 2);
      const patient = new Client({ base: url, credential: "t" });
      const stop = new AbortController();
      const call = patient.call("GET", "/v1/account", { signal: stop.signal });
      stop.abort(new Error("enough"));
      await assert.rejects(call, /enough/);
    },
  );
});

test("an attempt that the end of the call cuts short does not hide what the server said before", async () => {
  let count = 0;
  const handler: Handler = (_, response) => {
    if (++count === 1) problem(response, 503, "UNAVAILABLE", { "retry-after": "0" });
  };
  await using(handler, async ({ url, requests }) => {
    const client = new Client({ base: url, credential: "t", retryFor: 5_000 });
    await assert.rejects(client.call("GET", "/v1/account"), { code: "UNAVAILABLE" });
    assert.equal(requests.length, 2);
  });
});

test("nothing listens: the call is repeated, and then fails", async () => {
  const { url, close } = await scripted(() => undefined);
  await close();
  const client = new Client({ base: url, credential: "t", retryFor: 300 });
  await assert.rejects(client.call("POST", "/v1/auth/links"), (error) => error instanceof NoAnswer && !error.mayHaveHappened);
});

test("what is gone after a lost answer was deleted", async () => {
  let count = 0;
  const handler: Handler = (_, response) => (++count === 1 ? void response.destroy() : problem(response, 404, "NOT_FOUND"));
  await using(handler, async ({ url }) => {
    const client = new Client({ base: url, credential: "t" });
    assert.deepEqual(await client.call("DELETE", "/v1/sessions/{id}", path), { success: true });
    await assert.rejects(client.call("DELETE", "/v1/sessions/{id}", path), { code: "NOT_FOUND" });
  });
});

test("a server without the call is older, and says nothing about what the call names", async () => {
  let count = 0;
  const absent: Handler = (_, response) =>
    ++count === 1
      ? void response.destroy()
      : problem(response, 404, "NOT_FOUND", {}, { detail: "There is no such path. /openapi.json lists all there are." });
  await using(absent, async ({ url }) => {
    const client = new Client({ base: url, credential: "t" });
    const error = await client.call("DELETE", "/v1/sessions/{id}", path).catch((caught: unknown) => caught);
    assert.ok(
      error instanceof Problem && error.code === "OLDER_SERVER" && error.message.includes("older than this program"),
      String(error),
    );
    assert.ok(!isNotFound(error));
  });
  await using(
    (_, response) => problem(response, 404, "NOT_FOUND"),
    async ({ url }) => {
      const error = await new Client({ base: url, credential: "t" })
        .call("GET", "/v1/account")
        .catch((caught: unknown) => caught);
      assert.ok(isNotFound(error));
    },
  );
  // A proxy that forwards nothing.
  await using(
    (_, response) => void response.writeHead(404).end("<html>"),
    async ({ url }) => {
      const error = await new Client({ base: url, credential: "t" })
        .call("GET", "/v1/account")
        .catch((caught: unknown) => caught);
      assert.ok(error instanceof Problem && !isNotFound(error));
    },
  );
});

test("a redirect does not get the token, and only http is an address", async () => {
  await using(
    ({ path }, response) => void response.writeHead(302, { location: `/stolen${path}` }).end(),
    async ({ url, requests }) => {
      const client = new Client({ base: url, credential: "t", retryFor: 100 });
      await assert.rejects(client.call("GET", "/v1/account"), NoAnswer);
      assert.ok(requests.every((request) => !request.path.includes("stolen")));
    },
  );
  for (const base of ["ftp://x", "javascript:alert(1)", "localhost:8080"])
    assert.throws(() => new Client({ base }), TypeError, base);
});

test("a page of a network, and half an answer, are no answers", async () => {
  for (const body of ["<h1>Sign in to the hotel's network</h1>", '{"id":"a', ""]) {
    await using(
      (_, response) => void response.writeHead(200, { "content-type": "application/json" }).end(body),
      async ({ url }) => {
        // How long it retries. Its last attempt must not be cut short on a busy machine.
        const client = new Client({ base: url, credential: "t", retryFor: 5_000 });
        const call = client.call("GET", "/v1/account");
        if (body === "") return assert.equal(await call, undefined);
        await assert.rejects(call, { name: "NoAnswer", why: "foreign" });
      },
    );
  }
});

test("a page of a network and half an answer are asked for again, and the observer is notified", async () => {
  const answers: [string, string][] = [
    ["text/html", "<h1>Sign in</h1>"],
    ["application/json", '{"id":"a'],
    ["application/json", '{"id":"a"}'],
  ];
  const said: string[] = [];
  const onCall = () => ({
    failed: (error: unknown) => void said.push((error as NoAnswer).why),
    over: (isAnswered: boolean) => void said.push(String(isAnswered)),
  });
  const handler: Handler = (_, response) => {
    const [type, body] = answers.shift() ?? [];
    response.writeHead(200, { "content-type": type ?? "" }).end(body);
  };
  await using(handler, async ({ url }) => {
    const client = new Client({ base: url, credential: "t", onCall });
    assert.equal((await client.call("GET", "/v1/account")).id, "a");
    assert.deepEqual(said, ["foreign", "foreign", "true"]);
  });
});

test("a ref belongs to its id, wherever it stands in an answer", async () => {
  const task = { id: "01932b5e-7b1a-7c3e-8f00-000000000001", ref: "nfdgfkbv" };
  const machine = { id: "laptop", ref: "yngk6cfg" };
  assert.deepEqual([await refOf(task.id), await refOf(machine.id)], [task.ref, machine.ref]);
  const swapped = { ...machine, ref: task.ref };
  for (const [answer, isRight] of [
    [machine, true],
    [swapped, false],
  ] as const) {
    const answers = [answer, { machines: [machine, answer], nextCursor: null }, { ...task, run: { ...task, tasks: [answer] } }];
    for (const body of answers) {
      await using(
        (_, response) => json(response, 200, body),
        async (server) => {
          const client = new Client({ base: server.url });
          const call = client.call("GET", "/v1/machines");
          await (isRight ? call : assert.rejects(call, Distrust));
        },
      );
    }
  }
});
