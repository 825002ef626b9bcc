// Fills a hosted session with texts of its machine, as its host would write them, straight at the interface: a real agent would need many
// minutes for as many. The keys are those of the person's terminal, where the machine's are, too.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Account, DeviceKeys, MemoryStore } from "@ensemble/client/account";
import { purposes, sealContent } from "@ensemble/client/seal";
import { signBody } from "@ensemble/client/transcript";
import { ensemble } from "./terminal.mjs";

/** Messages that the server takes at once. */
const AT_ONCE = 200;

const keysIn = async (path) => DeviceKeys.fromKeyFile(await readFile(path, "utf8"));

/** Adds `count` texts, "line 1" and so on, after the message with the number `n` of the machine. Its host must not be at work. */
export async function fill(base, sessionId, count, n) {
  const home = process.env.ENSEMBLE_HOME;
  // The terminal has checked the list of devices that the server has now.
  const store = new MemoryStore();
  const { list } = await (
    await fetch(`${base}/v1/devices`, { headers: { authorization: `Bearer ${await ensemble(["token"])}` } })
  ).json();
  await store.update(`list ${JSON.parse(await ensemble(["whoami", "--json"])).id}`, () => list);
  const account = await Account.create({ base, store, name: "", keys: await keysIn(join(home, "account.key")) });
  const machines = join(home, "machines");
  const file = (await readdir(machines, { recursive: true })).find((name) => name.endsWith(".key"));
  const { signer } = await keysIn(join(machines, file));
  const session = await account.sessions.read(sessionId);
  const ring = await account.sessions.ring(session);
  const { version, digest } = (await account.own()).list;
  const at = new Date().toISOString();
  const message = async (line) => {
    const number = n + line;
    const localId = `h${number}`;
    const body = JSON.stringify({
      v: 1,
      type: "text",
      localId,
      at,
      list: { version, digest },
      n: number,
      turnId: "filled",
      part: line,
      text: `line ${line}`,
    });
    const signed = await signBody(session.id, account.userId, body, signer);
    return { content: await sealContent(ring, purposes.message(session.id), signed), localId, keyEpoch: ring.epoch };
  };
  const { client } = account;
  for (let begun = 1; begun <= count; begun += AT_ONCE) {
    const lines = Array.from({ length: Math.min(AT_ONCE, count - begun + 1) }, (_, more) => begun + more);
    const body = { messages: await Promise.all(lines.map(message)) };
    await client.call("POST", "/v3/sessions/{id}/messages/batch", { path: { id: session.id }, body });
  }
}
