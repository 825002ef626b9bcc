// Looks: against the vectors, and put together from parts of a machine that is made up here.

import assert from "node:assert/strict";
import test from "node:test";
import { Problem, Refused, SealError } from "@ensemble/client";
import type { Context } from "@ensemble/client/account";
import { SigningKey } from "@ensemble/client/lists";
import { LookRefused, Looks, MachineAway, Question, type Look } from "@ensemble/client/looks";
import { BoxPair, openWith, sealTo } from "@ensemble/client/seal";
import { digestText, sha256, utf8 } from "../src/protocol/bytes.js";
import { bytes, encode, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/looks.json");
const keysOf = async (seed: string) => ({
  signer: await SigningKey.fromSeed(bytes(seed)),
  box: await BoxPair.ofSeed(bytes(seed)),
});
const [asker, guest, runner] = await Promise.all([given.askerSeed, given.guestSeed, given.machineSeed].map(keysOf));
const { owner, machine, machineKey, machineBoxKey } = given;
const of = { owner, machine, key: machineKey, boxKey: machineBoxKey };
const json = (opened: Uint8Array): any => JSON.parse(new TextDecoder().decode(opened));
const opened = async (sealed: string): Promise<any> =>
  json(await openWith(runner!.box, sealed, given.questionAad, "ensemble-look-v1"));

/** What was asked, without the members that all questions have. */
function lookIn(body: string): Look {
  const { v: _v, session: _session, nonce: _nonce, at: _at, list: _list, ...look } = JSON.parse(body);
  return look;
}

/** What an answer says. What it leaves out is read as nothing or as no. */
const saidIn = (body: unknown): unknown =>
  JSON.parse(JSON.stringify(body, (_, value) => (value === false || value === null || value.length === 0 ? undefined : value)));

const asked = ({ body }: { body: string }): Promise<Question<Look>> =>
  Question.asked(body, lookIn(body), of, { user: owner, ...asker! });

test("each look is asked as the vector asks it, and its answer opens once", async () => {
  for (const { look, question, answer } of given.looks) {
    const made = await asked(question);
    const [mine, theirs] = [await opened(made.sealed), await opened(question.blob)];
    assert.deepEqual(mine, theirs, `${look}: body, user, key and signature are the same`);
    const body = JSON.parse(answer.body);
    if (look === "refused") {
      const isIt = (error: unknown) => error instanceof LookRefused && error.code === body.error && error.message === body.text;
      await assert.rejects(made.open(answer.blob), isIt);
    } else {
      assert.deepEqual(saidIn(await made.open(answer.blob)), saidIn(body), look);
    }
    await assert.rejects(made.open(answer.blob), SealError, "one answer is taken");
  }
});

test("an answer to another asker or question, or by another machine, is none", async () => {
  const [first] = given.looks;
  for (const { why, blob } of given.badAnswers) await assert.rejects((await asked(first.question)).open(blob), SealError, why);
  const other = await Question.asked(first.question.body, lookIn(first.question.body), of, { user: owner, ...guest! });
  await assert.rejects(other.open(first.answer.blob), SealError);
  const otherKey = { ...of, key: guest!.signer.publicKey };
  const ofOther = await Question.asked(first.question.body, lookIn(first.question.body), otherKey, { user: owner, ...asker! });
  await assert.rejects(ofOther.open(first.answer.blob), (error) => error instanceof SealError && error.kind === "signature");
});

test("no two questions are the same, and a long one is not sent", async () => {
  const list = { version: 7, digest: encode(new Uint8Array(32)) };
  const ask = (path: string) =>
    Question.ask({ look: "file", path }, "s", of, { user: owner, ...asker!, list }, new Date(given.now));
  const bodies = await Promise.all(
    [ask("a"), ask("a")].map(async (one) => JSON.parse((await opened((await one).sealed)).body)),
  );
  const [{ nonce, ...one }, { nonce: otherNonce, ...other }] = bodies;
  assert.deepEqual(one, { v: 1, session: "s", at: given.now, list, look: "file", path: "a" });
  assert.deepEqual(other, one);
  assert.notEqual(nonce, otherNonce);
  assert.equal(bytes(nonce).length, 16);
  await assert.rejects(ask("a".repeat(12_000)), (error) => error instanceof SealError && error.kind === "bound");
});

/** A machine that answers what `answer` says to each question. */
function looksAt(answer: (look: any) => unknown, { isListed = true } = {}): { looks: Looks; sent: any[] } {
  const sent: any[] = [];
  const call = async (_method: string, _path: string, { body }: any): Promise<{ answer: string }> => {
    const question = await opened(body.question);
    sent.push({ ...JSON.parse(question.body), sessionId: body.sessionId, machineId: body.machineId });
    const said = JSON.stringify(await answer(lookIn(question.body)));
    const aad = `ensemble-look-answer-v1\n${machine}\n${await digestText(question.body)}`;
    const sig = encode(await runner!.signer.sign(utf8(`${aad}\n${said}`)));
    const signed = utf8(JSON.stringify({ body: said, sig }));
    return { answer: await sealTo(asker!.box.publicKey, signed, aad, "ensemble-look-answer-v1") };
  };
  const list = {
    version: 7,
    digest: "d",
    machine: (id: string) => (isListed && id === machine ? { key: machineKey, boxKey: machineBoxKey } : undefined),
  };
  const context = { client: { call }, keys: asker, userId: owner, people: { list: async () => list } };
  return { looks: new Looks(context as unknown as Context, { id: "s", ownerId: owner, machineId: machine }), sent };
}

const PART = 1_000;
/** A text in parts that end where a character does. */
async function partOf(text: string, from: number, more = {}): Promise<object> {
  const whole = utf8(text);
  let end = Math.min(whole.length, from + PART);
  while (end < whole.length && (whole[end]! & 0xc0) === 0x80) end--;
  const part = new TextDecoder().decode(whole.subarray(from, end));
  return { text: part, bytes: whole.length, digest: await digestText(text), ...more };
}

test("a diff is put together from its parts", async () => {
  const text = "+ naïve 🙂\n".repeat(400);
  const { looks, sent } = looksAt(({ from = 0 }) => partOf(text, from, { cut: 3 }));
  assert.deepEqual(await looks.diff("begin", "src/a.rs"), { text, cut: 3 });
  assert.ok(sent.length > 4);
  const [{ v, session, sessionId, machineId, look, what, since, path, list }] = sent;
  assert.deepEqual(
    [v, session, sessionId, machineId, look, what, since, path, list],
    [1, "s", "s", undefined, "git", "diff", "begin", "src/a.rs", { version: 7, digest: "d" }],
  );
  assert.deepEqual(await looksAt(() => partOf("", 0)).looks.diff("now", "a"), { text: "", cut: 0 });
});

test("what changes while it is read is read once more, and refused when it does not rest", async () => {
  const [before, after] = ["a".repeat(2_500), "b".repeat(2_500)];
  let asked = 0;
  const { looks } = looksAt(({ from = 0 }) => partOf(++asked > 2 ? after : before, from));
  assert.equal((await looks.diff("now", "a")).text, after);
  const always = looksAt(({ from = 0 }) => partOf(`${asked++}`.repeat(1_500), from));
  await assert.rejects(always.looks.diff("now", "a"), Refused);
  assert.ok(always.sent.length <= 4);
  const lies = looksAt(async ({ from = 0 }) => ({ ...(await partOf(before, from)), digest: await digestText("x") }));
  await assert.rejects(lies.looks.diff("now", "a"), Refused, "its digest is of another text");
  const empty = looksAt(async () => ({ ...(await partOf(before, 0)), text: "" }));
  await assert.rejects(empty.looks.diff("now", "a"), Refused, "a part without a text does not end it");
  assert.equal(empty.sent.length, 2);
});

test("a file comes as a whole, and one of more than 512 KiB not at all", async () => {
  const content = crypto.getRandomValues(new Uint8Array(3_333));
  const file = async (all: Uint8Array<ArrayBuffer>, { from = 0 }, size = all.length): Promise<object> => ({
    bytes: size,
    at: given.now,
    digest: encode(await sha256(all)),
    kind: "picture",
    data: encode(all.subarray(from, from + PART)),
  });
  const { looks, sent } = looksAt((look) => file(content, look));
  assert.deepEqual(await looks.file("logo.png"), { bytes: 3_333, kind: "picture", at: given.now, content });
  assert.deepEqual(
    sent.map(({ from = 0 }) => from),
    [0, 1_000, 2_000, 3_000],
  );
  const long = looksAt((look) => file(content, look, (512 << 10) + 1));
  assert.deepEqual(await long.looks.file("a"), { bytes: (512 << 10) + 1, kind: "picture", at: given.now });
  assert.equal(long.sent.length, 1);
});

test("a machine that refuses, is away, or is not listed says so", async () => {
  const busy = looksAt(() => ({ error: "busy", text: "Too many looks. Wait a minute." }));
  await assert.rejects(busy.looks.ask({ look: "names", depth: 1 }), { name: "LookRefused", code: "busy", message: /Wait/ });
  const away = looksAt(() => {
    throw new Problem({ code: "MACHINE_AWAY", detail: "It is away." }, 409, undefined);
  });
  await assert.rejects(away.looks.ask({ look: "names", depth: 1 }), MachineAway);
  const unlisted = looksAt(() => ({}), { isListed: false });
  await assert.rejects(unlisted.looks.ask({ look: "names", depth: 1 }), Refused);
  assert.equal(unlisted.sent.length, 0);
  for (const bad of [
    [],
    { names: {} },
    { names: [{ path: 1, kind: "file" }] },
    { names: Array(5_001).fill({ path: "a", kind: "file" }) },
  ]) {
    const { looks } = looksAt(() => bad);
    await assert.rejects(looks.ask({ look: "names", depth: 1 }), SealError, JSON.stringify(bad).slice(0, 80));
  }
});
