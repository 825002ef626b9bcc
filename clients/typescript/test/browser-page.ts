// What the page of browser.test.ts does, one step for each load of the page. Compiled for a browser, not for Node.js.

import { Account, join, type JoinOptions } from "@ensemble/client/account";
import { IndexedDbStore } from "@ensemble/client/indexeddb";
import { KeyRing, openJson, purposes, RecoveryWords, sealJson } from "@ensemble/client/seal";
import { followHints } from "@ensemble/client";

/** The result of a step. */
export interface StepResult {
  userId: string;
  title?: string;
  texts?: (string | undefined)[];
  exported?: string;
  words?: number;
}

const steps: Record<string, (base: string, given: string) => Promise<StepResult>> = {
  /** A new account, whose keys are kept. */
  async create(base) {
    const store = await IndexedDbStore.open(base);
    const account = await Account.create({ base, store, name: "Chromium" });
    const session = await account.sessions.create({ title: "In a browser" });
    await (await account.sessions.converse(session.id)).send("before the reload");
    const words = await RecoveryWords.generate().words();
    return { userId: account.userId, words: words.length };
  },

  /** The same account after a reload, with keys that no script can read. */
  async open(base) {
    const store = await IndexedDbStore.open(base);
    const account = await Account.open({ base, store });
    if (!account) throw new Error("the account is forgotten");
    for await (const hint of followHints(account.client)) {
      if (hint.kind === "all") break;
    }
    const [sessions] = [(await account.sessions.pages().next()).value ?? []];
    const [session] = sessions;
    if (!session) throw new Error("there is no session");
    const talk = await account.sessions.converse(session.id);
    await talk.send("after the reload");
    const exporting = [account.keys.signer.privateKey, account.keys.box.privateKey].map((key) =>
      crypto.subtle.exportKey("pkcs8", key).then(
        () => "yes",
        (error: Error) => error.name,
      ),
    );
    const texts = (await talk.page()).map(({ text }) => text);
    const { title } = await account.sessions.metadata(session);
    return {
      userId: account.userId,
      texts,
      exported: (await Promise.all(exporting)).join(" "),
      ...(title !== undefined && { title }),
    };
  },

  /** Two tabs change one record at the same time, and one lock has one holder. */
  async store(base) {
    const [one, other] = [await IndexedDbStore.open(`${base}/other`), await IndexedDbStore.open(`${base}/other`)];
    const add = (store: IndexedDbStore) => store.update<number>("count", (count = 0) => count + 1);
    await Promise.all(Array.from({ length: 50 }, (_, at) => add(at % 2 === 0 ? one : other)));
    let [inside, most] = [0, 0];
    const hold = (store: IndexedDbStore) =>
      store.lock("l", async () => {
        most = Math.max(most, ++inside);
        await add(store);
        inside--;
      });
    await Promise.all([hold(one), hold(other), hold(one)]);
    const count = await one.get<number>("count");
    await one.update("count", () => undefined);
    const gone = await other.get("count");
    return { userId: `${count} ${most} ${gone}` };
  },

  /** Joins as a linked device. */
  async join(base, address) {
    const store = await IndexedDbStore.open(`${base}/linked`);
    const options: JoinOptions = { store, name: "Another browser" };
    const joining = await join(address, options);
    await fetch("/digits", { method: "POST", body: joining.digits });
    const account = await joining.finished(AbortSignal.timeout(120_000));
    const ring = KeyRing.generate();
    const sealed = await sealJson(ring, purposes.sessionMetadata("s"), { title: "x" });
    const { title } = await openJson(ring, purposes.sessionMetadata("s"), sealed);
    return { userId: account.userId, title: String(title) };
  },
};

const query = new URLSearchParams(location.hash.slice(1));
const step = steps[query.get("step") ?? ""];
try {
  if (!step) throw new Error("no such step");
  const result = await step(query.get("base") ?? "", query.get("given") ?? "");
  await fetch("/result", { method: "POST", body: JSON.stringify({ result }) });
} catch (error) {
  await fetch("/result", { method: "POST", body: JSON.stringify({ failed: String((error as Error).stack ?? error) }) });
}
