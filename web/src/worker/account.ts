/** The account of this browser, as the worker opens it: with the key of the device, which no script can export. */
import { Account } from "@ensemble/client/account";
import { IndexedDbStore } from "@ensemble/client/indexeddb";
import { findServer, server } from "../base/server.ts";

/** A push and a click are over soon: a browser ends a worker that takes long. */
const WITHIN_MS = 8_000;

export async function account(): Promise<Account> {
  await findServer();
  const base = server();
  const found = await Account.open({
    base,
    store: await IndexedDbStore.open(base),
    retryFor: WITHIN_MS,
    answerWithin: WITHIN_MS,
  });
  if (!found) throw new Error("There is no account in this browser.");
  return found;
}

/** What it gives, unless it takes too long. */
export function soon<T>(work: Promise<T>, within = 2 * WITHIN_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("It took too long.")), within);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
