// Messages of the vectors are read and checked, and signed again as they are.

import assert from "node:assert/strict";
import test from "node:test";
import { SigningKey } from "@ensemble/client/lists";
import * as transcript from "@ensemble/client/transcript";
import { bytes, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/messages.json");
const host = await SigningKey.fromSeed(bytes(given.hostSeed));
const device = await SigningKey.fromSeed(bytes(given.deviceSeed));
const utf8 = (text: string) => Uint8Array.from(new TextEncoder().encode(text));

test("every message of the vectors is signed, and read with all its members", async () => {
  for (const { type, digest, signed } of given.messages) {
    const opened = utf8(JSON.stringify(signed));
    const envelope = await transcript.openEnvelope(given.sessionId, opened);
    assert.ok(typeof envelope !== "string", type);
    assert.equal(await transcript.bodyDigest(envelope.body), digest);
    assert.equal(await transcript.openEnvelope(given.otherSessionId, opened), "its signature is not good for this session");
    const changed = utf8(JSON.stringify({ ...signed, body: `${signed.body} ` }));
    assert.equal(await transcript.openEnvelope(given.sessionId, changed), "its signature is not good for this session");
    const signer = "n" in JSON.parse(signed.body) ? host : device;
    const again = await transcript.signBody(given.sessionId, signed.user, signed.body, signer);
    assert.deepEqual(JSON.parse(new TextDecoder().decode(again)), signed);

    const message = transcript.readBody(envelope.body);
    assert.ok(!("unreadable" in message), type);
    const { v: _v, ...body } = JSON.parse(envelope.body);
    const { content, ...head } = message;
    const written = JSON.parse(JSON.stringify({ ...head, ...content }));
    // Absent lists are empty, and absent flags are false.
    for (const [name, value] of Object.entries(written)) {
      if (!(name in body) && (value === false || (Array.isArray(value) && value.length === 0))) delete written[name];
    }
    for (const question of written.questions ?? []) if (!question.multiple) delete question.multiple;
    assert.deepEqual(written, body);
    assert.equal(transcript.writerOf(content), signer === host ? "host" : "client");
  }
});

test("commands are written as the Rust client writes them", () => {
  const commands = given.messages.filter(({ type }: { type: string }) => ["prompt", "answer", "control"].includes(type));
  for (const { signed } of commands) {
    const message = transcript.readBody(signed.body);
    assert.ok(!("unreadable" in message) && message.content.type !== "newer");
    const { localId, at, list, content } = message;
    const body = transcript.writeCommand(content as transcript.Command, { localId, at, list });
    assert.deepEqual(JSON.parse(body), JSON.parse(signed.body));
  }
});

test("what is not signed, or not a message, is named", async () => {
  const [{ signed }] = given.messages;
  const open = (value: unknown) =>
    transcript.openEnvelope(given.sessionId, utf8(typeof value === "string" ? value : JSON.stringify(value)));
  for (const bad of ["", "null", "[]", { text: "hello" }, { ...signed, v: 2 }, { ...signed, body: 7 }]) {
    assert.equal(await open(bad), "it is not signed", JSON.stringify(bad));
  }
  for (const bad of [
    { ...signed, key: "x" },
    { ...signed, sig: "" },
    { ...signed, user: given.sessionId },
  ]) {
    assert.equal(await open(bad), "its signature is not good for this session", JSON.stringify(bad));
  }
  assert.ok(typeof (await open({ ...signed, later: 1 })) !== "string", "a later version may add members");
  assert.match(String(await open(" ".repeat(800_000))), /too long/);
  const unreadable = (body: string) => "unreadable" in transcript.readBody(body);
  for (const bad of [
    "",
    "null",
    "[1]",
    "{}",
    "x".repeat(700_000),
    signed.body.replace('"m0"', '""'),
    signed.body.replace('"go"', "7"),
  ]) {
    assert.ok(unreadable(bad), bad.slice(0, 80));
  }
  const newer = (body: string) => {
    const message = transcript.readBody(body);
    return "content" in message && message.content.type === "newer";
  };
  assert.ok(newer(signed.body.replace('"prompt"', '"hologram"')) && newer(signed.body.replace('"v":1', '"v":2')));
  assert.ok(newer(signed.body.replace('"prompt"', '"__proto__"')), "names of JavaScript are no types");
  const long = transcript.signBody(given.sessionId, signed.user, '"'.repeat(600_000), device);
  await assert.rejects(long, /too long/);
});

test("hidden characters are shown", () => {
  const shown = [
    ["ls -l\n\tgrüße 😀", "ls -l\n\tgrüße 😀"],
    ["a\rb\u{1b}[2K", "a\\u{d}b\\u{1b}[2K"],
    ["x\u{202e}y\u{2066}z", "x\\u{202e}y\\u{2066}z"],
    ["a\u{a0}b\u{3164}c\u{e0041}", "a\\u{a0}b\\u{3164}c\\u{e0041}"],
    ["\u{0}\u{7f}\u{9b}", "\\u{0}\\u{7f}\\u{9b}"],
  ];
  for (const [text, expected] of shown) assert.equal(transcript.visible(text ?? ""), expected);
});
