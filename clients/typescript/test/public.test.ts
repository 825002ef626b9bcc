// What a public link shows: only the session's own machine speaks as the machine.

import assert from "node:assert/strict";
import test from "node:test";
import { Distrust, newId } from "@ensemble/client";
import { NO_HOST, PublicSession } from "@ensemble/client/account";
import { SigningKey } from "@ensemble/client/lists";
import { KeyRing, LinkSecret, openMetadata, purposes, sealContent, sealMetadata } from "@ensemble/client/seal";
import { signBody } from "@ensemble/client/transcript";

const SESSION = "01890a5d-ac96-774b-bcce-b302099a8057";
const OWNER = "01890a5d-ac96-774b-bcce-b302099a8058";

test("a guest who signs as the machine is not shown as the machine", async () => {
  const ring = KeyRing.generate();
  const [machine, guest] = [await SigningKey.generate(), await SigningKey.generate()];
  const said = async (seq: number, signer: SigningKey, text: string) => {
    const body = {
      v: 1,
      type: "text",
      localId: `h${seq}`,
      at: "2026-01-01T00:00:00Z",
      list: { version: 1, digest: "d" },
      n: seq,
      turnId: "t",
      part: 0,
      text,
    };
    const content = await sealContent(
      ring,
      purposes.message(SESSION),
      await signBody(SESSION, OWNER, JSON.stringify(body), signer),
    );
    return { id: newId(), seq, content, keyEpoch: 1, createdAt: body.at };
  };
  // The guest was first.
  const messages = [await said(1, guest, "I am the machine"), await said(2, machine, "hello")];
  const at = "2026-01-01T00:00:00Z";
  const session = {
    id: SESSION,
    metadata: "",
    metadataVersion: 1,
    status: "active",
    hosted: true,
    lastSeq: 2,
    createdAt: at,
    updatedAt: at,
  };
  const shown = async (secret: LinkSecret, hosted = true) => {
    const view = {
      session: { ...session, hosted },
      messages,
      accessLevel: "view",
      encryptedKey: await secret.seal(ring, SESSION),
      hasMore: false,
      nextBefore: null,
      nextAfter: null,
      expiresAt: null,
      remainingUses: null,
      viewToken: "v",
    };
    const fetch = () => Promise.resolve(Response.json(view));
    const open = await PublicSession.open(secret.address("https://host/share/TOKEN"), { fetch });
    return open.view.items.map(({ shown, author }) => [author.kind, shown.type === "text" ? shown.part.text : shown.type]);
  };
  assert.deepEqual(await shown(LinkSecret.generate(machine.publicKey)), [
    ["unknown", "note"],
    ["host", "hello"],
  ]);
  assert.deepEqual(
    await shown(LinkSecret.generate()),
    [
      ["unknown", "note"],
      ["unknown", "note"],
    ],
    NO_HOST,
  );
  // Texts of a session of people are not signed, so a server that calls it one could add some.
  await assert.rejects(shown(LinkSecret.generate(machine.publicKey), false), Distrust);
});

test("a public page has the title that the machine of its link has signed, and no other", async () => {
  const ring = KeyRing.generate();
  const [machine, guest] = [await SigningKey.generate(), await SigningKey.generate()];
  const sealed = (version: number, title: string, signer: SigningKey, more = {}) =>
    sealMetadata(ring, SESSION, version, { body: JSON.stringify({ title }), user: OWNER, ...more }, signer);
  const at = "2026-01-01T00:00:00Z";
  const shown = async (
    metadata: string,
    metadataVersion: number,
    secret = LinkSecret.generate(machine.publicKey),
    hosted = true,
  ) => {
    const session = {
      id: SESSION,
      metadata,
      metadataVersion,
      status: "active",
      hosted,
      lastSeq: 0,
      createdAt: at,
      updatedAt: at,
    };
    const rest = { hasMore: false, nextBefore: null, nextAfter: null, expiresAt: null, remainingUses: null, viewToken: "v" };
    const view = { session, messages: [], accessLevel: "view", encryptedKey: await secret.seal(ring, SESSION), ...rest };
    const fetch = () => Promise.resolve(Response.json(view));
    const open = await PublicSession.open(secret.address("https://host/share/TOKEN"), { fetch });
    return open.metadata().catch(() => "no title");
  };
  const first = await sealed(1, "By the machine", machine);
  assert.deepEqual(await shown(first, 1), { title: "By the machine" });
  assert.deepEqual(await shown(await sealed(2, "By a guest", guest), 2), {});
  const { own: ofMachine } = await openMetadata(ring, SESSION, 1, first);
  assert.deepEqual(await shown(await sealed(2, "By a guest", guest, { ofMachine }), 2), { title: "By the machine" });
  const changed = { ...ofMachine, body: JSON.stringify({ title: "By a guest" }) };
  assert.deepEqual(await shown(await sealed(2, "By a guest", guest, { ofMachine: changed }), 2), {});
  assert.equal(await shown(first, 2), "no title", "shown again as a later version");
  assert.deepEqual(await shown(first, 1, LinkSecret.generate(), false), {}, "of people");
});

test("a link that names a machine is read", async () => {
  const { publicKey } = await SigningKey.generate();
  const secret = LinkSecret.generate(publicKey);
  const read = LinkSecret.fromFragment(`#${secret.fragment}`);
  assert.deepEqual([read.host, read.fragment], [publicKey, secret.fragment]);
  for (const bad of [`${secret.fragment}.`, `${secret.fragment}A`, `${LinkSecret.generate().fragment}.AAAA`]) {
    assert.throws(() => LinkSecret.fromFragment(bad), { kind: "format" }, bad);
  }
});
