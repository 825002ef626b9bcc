// Streams that are cut, silent, doubled and refused: no gap, and nothing twice.

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import test from "node:test";
import {
  Client,
  DeviceCredential,
  followHints,
  followRun,
  followSession,
  type FollowOptions,
  type StreamState,
} from "@ensemble/client";
import { SigningKey } from "@ensemble/client/lists";
import { json, problem, scripted, token, type Handler } from "./scripted.js";

type Step = (response: ServerResponse) => void;

const event = (seq: number, text = "x") => `id: ${seq}\nevent: message\ndata: ${JSON.stringify({ seq, content: text })}\n\n`;
const open = (response: ServerResponse) => response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();

/** Each connection gets the next step. */
async function connections(steps: Step[], run: (client: Client, seen: (string | undefined)[]) => Promise<void>): Promise<void> {
  const seen: (string | undefined)[] = [];
  let signIns = 0;
  const handler: Handler = ({ method, path, headers }, response) => {
    if (path === "/v1/auth/challenge") return json(response, 200, { challenge: "c", expiresAt: "" });
    if (path === "/v1/auth") return json(response, 200, { token: token(`t${++signIns}`), userId: "u", expiresAt: "" });
    const by = method === "GET" ? "" : `${method} `;
    seen.push(`${by}${headers["last-event-id"] ?? "-"} ${headers.authorization?.split(".").at(-1)}`);
    const step = steps.shift();
    if (step) step(response);
    else problem(response, 404, "NOT_FOUND");
  };
  const server = await scripted(handler);
  try {
    await run(new Client({ base: server.url, credential: new DeviceCredential(await SigningKey.generate()) }), seen);
  } finally {
    await server.close();
  }
}

async function numbers(client: Client, count: number, options: FollowOptions & { after?: number } = {}): Promise<number[]> {
  const got: number[] = [];
  for await (const one of followSession(client, "s", { signal: AbortSignal.timeout(120_000), ...options })) {
    if (one.event === "message") got.push(one.data.seq);
    if (got.length >= count) break;
  }
  return got;
}

test("a stream that is cut resumes after its last event, and gives none twice", async () => {
  const steps: Step[] = [
    (response) => {
      open(response);
      response.write(`retry: 10\n\n${event(1)}${event(2)}id: 3\nevent: message\ndata: {"seq":3,`);
      setImmediate(() => response.destroy());
    },
    (response) => problem(response, 503, "UNAVAILABLE", { "retry-after": "0" }),
    (response) => {
      open(response);
      response.end(`${event(2)}${event(3)}event: end\nretry: 5\ndata: {"reason":"draining"}\n\n`);
    },
    (response) => {
      open(response);
      response.write(`: connected\n\nevent: hologram\ndata: {}\n\n${event(3)}${event(4)}`);
    },
  ];
  await connections(steps, async (client, seen) => {
    const states: string[] = [];
    const onState = ({ state }: StreamState) => void states.push(state);
    assert.deepEqual(await numbers(client, 4, { after: 0, onState }), [1, 2, 3, 4]);
    assert.deepEqual(seen, ["0 t1", "2 t1", "2 t1", "3 t1"]);
    assert.deepEqual(states, ["connecting", "open", "connecting", "connecting", "open", "connecting", "open"]);
  });
});

test("a silent connection is given up, and characters may be cut anywhere", async () => {
  const steps: Step[] = [
    (response) => {
      open(response);
      response.write(event(1));
    },
    (response) => {
      open(response);
      const bytes = Buffer.from(event(2, "grüße 😀"));
      const next = (at: number): void => {
        if (at < bytes.length) response.write(bytes.subarray(at, at + 1), () => setImmediate(next, at + 1));
      };
      next(0);
    },
  ];
  await connections(steps, async (client, seen) => {
    const texts: string[] = [];
    for await (const one of followSession(client, "s", { silence: 5_000, signal: AbortSignal.timeout(120_000) })) {
      if (one.event === "message") texts.push(one.data.content);
      if (texts.length === 2) break;
    }
    assert.deepEqual(
      [texts, seen],
      [
        ["x", "grüße 😀"],
        ["- t1", "1 t1"],
      ],
    );
  });
});

test("an old token is renewed once, and a refusal ends the stream", async () => {
  const steps: Step[] = [
    (response) => problem(response, 401, "UNAUTHENTICATED"),
    (response) => {
      open(response);
      response.end(`${event(5)}event: end\nretry: 5\ndata: {"reason":"token_expired"}\n\n`);
    },
    (response) => {
      open(response);
      response.write(event(6));
    },
  ];
  await connections(steps, async (client, seen) => {
    assert.deepEqual(await numbers(client, 2), [5, 6]);
    assert.deepEqual(seen, ["- t1", "- t2", "5 t3"]);
    await assert.rejects(numbers(client, 1), { code: "NOT_FOUND" });
  });
  const refused = (response: ServerResponse): void => problem(response, 401, "UNAUTHENTICATED");
  await connections([refused, refused, refused], async (client, seen) => {
    await assert.rejects(numbers(client, 1), { code: "UNAUTHENTICATED" });
    assert.equal(seen.length, 2);
  });
});

test("hints begin with all, also after each new connection", async () => {
  const hint = 'event: hint\ndata: {"kind":"session","id":"s","revision":1}\n\n';
  const connection: Step = (response) => {
    open(response);
    response.end(hint);
  };
  await connections([connection, connection], async (client) => {
    const kinds: string[] = [];
    for await (const { kind } of followHints(client, { signal: AbortSignal.timeout(120_000) })) {
      kinds.push(kind);
      if (kinds.length === 4) break;
    }
    assert.deepEqual(kinds, ["all", "session", "all", "session"]);
  });
});

test("a stream ends when nothing more can come, or when it is given up", async () => {
  const steps: Step[] = [
    (response) => {
      open(response);
      response.end('id: 4\nevent: change\ndata: {"terminal":true}\n\nevent: end\nretry: 5\ndata: {"reason":"terminal"}\n\n');
    },
    (response) => {
      open(response);
      response.write(": connected\n\n");
    },
  ];
  await connections(steps, async (client, seen) => {
    const changes: boolean[] = [];
    for await (const { data } of followRun(client, "r")) changes.push(data.terminal);
    assert.deepEqual([changes, seen.length], [[true], 1]);
    const stop = new AbortController();
    const onState = ({ state }: StreamState) => (state === "open" ? stop.abort() : undefined);
    for await (const _event of followSession(client, "s", { signal: stop.signal, onState })) assert.fail("nothing comes");
    assert.equal(seen.length, 2);
  });
});

test("a page of HTML is no open stream, and a server's fault is waited for", async () => {
  const steps: Step[] = [
    (response) => void response.writeHead(200, { "content-type": "text/html" }).end("<h1>Sign in</h1>"),
    (response) => problem(response, 500, "INTERNAL"),
    (response) => {
      open(response);
      response.write(event(1));
    },
  ];
  await connections(steps, async (client) => {
    const states: string[] = [];
    const onState = (one: StreamState) =>
      void states.push(one.state === "open" ? "open" : String((one.error as Error | undefined)?.name));
    assert.deepEqual(await numbers(client, 1, { after: 0, onState }), [1]);
    assert.deepEqual(states, ["undefined", "NoAnswer", "Problem", "open"]);
  });
});

test("a stream that is held back is opened by POST, and the client remembers it", async () => {
  const held: Step[] = [() => undefined, open];
  for (const step of held) {
    const live: Step = (response) => {
      open(response);
      response.write(`: connected\n\n${event(1)}`);
    };
    await connections([step, live, live], async (client, seen) => {
      const states: string[] = [];
      const onState = ({ state }: StreamState) => void states.push(state);
      assert.deepEqual(await numbers(client, 1, { onState }), [1]);
      assert.deepEqual(
        [seen, states],
        [
          ["- t1", "POST - t1"],
          ["connecting", "open"],
        ],
      );
      assert.deepEqual([await numbers(client, 1), seen.at(-1)], [[1], "POST - t1"]);
    });
  }
});

test("an older server that is slow is followed by GET", async () => {
  const steps: Step[] = [
    () => undefined,
    (response) => problem(response, 405, "METHOD_NOT_ALLOWED"),
    (response) => {
      open(response);
      response.write(event(1));
    },
  ];
  await connections(steps, async (client, seen) => {
    assert.deepEqual([await numbers(client, 1), seen], [[1], ["- t1", "POST - t1", "- t1"]]);
  });
});
