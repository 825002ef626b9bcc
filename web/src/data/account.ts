/** The account of this browser. */
import { Account, join, type NewWords, recover, type Recovering } from "@ensemble/client/account";
import { IndexedDbStore } from "@ensemble/client/indexeddb";
import type { Admission } from "@ensemble/client/seal";
import { setRoom } from "../base/room.ts";
import { server } from "../base/server.ts";
import { setClockAhead } from "../base/server-clock.ts";
import { Store } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { tellSignedOut } from "../base/signed-out.ts";
import { onCall, onTrying } from "./connection.ts";
import { textOf } from "./failure.ts";
import { keepTrying, mayHeal } from "./keep-trying.ts";
import { forgetAll, forgetNamed, forgetSeen, keep, LINKS, recall } from "./kept.ts";
import { endPushes } from "./push.ts";
import { removed } from "./removed.ts";
import { forgetWords, makeWords, unconfirmedWords, willNeedWords } from "./unconfirmed-words.ts";

/** The role of this browser in the device list. */
export type Role = "primary" | "linked";

export type AccountState =
  | { state: "loading" }
  | { state: "none" }
  | { state: "failed"; text: string }
  /** What this browser kept was removed while the page was open. */
  | { state: "emptied" }
  /** The server says that this browser was removed from the account. */
  | { state: "removed" }
  /** It was made here, and its person has not confirmed yet that the recovery words are written down. */
  | { state: "words"; made: NewWords }
  | { state: "ready"; userId: string; fingerprint: string; role: Role };

export const account = new Store<AccountState>({ state: "loading" });

let opened: Account | undefined;
let store: Promise<IndexedDbStore> | undefined;

function kept(): Promise<IndexedDbStore> {
  store ??= IndexedDbStore.open(server(), { onClosed: () => void look(), onWritten: setRoom }).catch((error: unknown) => {
    store = undefined;
    throw error;
  });
  return store;
}

/** While a browser empties what a page keeps, nothing can be read: the number of attempts, and the milliseconds between them. */
const LOOKS = 10;
const LOOK_AGAIN_MS = 500;

/** Whether this browser still has the keys of the account that is open. Without them nothing outlives a reload. */
async function look(left: number = LOOKS): Promise<void> {
  const { state } = account.get();
  if (!opened || state !== "ready") return;
  try {
    const found = await kept().then(Account.stored);
    if (opened && found?.publicKey !== opened.keys.publicKey) account.set({ state: "emptied" });
  } catch {
    if (left > 0) setTimeout(() => void look(left - 1), LOOK_AGAIN_MS);
  }
}

if (typeof document !== "undefined") {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void look();
  });
}

removed.subscribe(() => {
  account.set({ state: "removed" });
  void forgetSeen();
  // A link works without an account.
  void forgetNamed(LINKS);
});

/** The account that is open. Screens that need one are shown only then. */
export function mine(): Account {
  if (!opened) throw new Error("There is no account here.");
  return opened;
}

/** Whether there is one, also before its first screen is shown. */
export const isOpened = (): boolean => opened !== undefined;

/** Opens the account of this browser, if it has one. If the server does not answer, this is repeated. */
export async function open(): Promise<void> {
  const trying = onTrying();
  await whileItMayHeal(
    async () => {
      const found = await Account.open({ base: server(), store: await kept(), onCall });
      if (!found) return account.set({ state: "none" });
      const made = await unconfirmedWords(found.devices);
      if (!made) return show(found);
      opened = found;
      return account.set({ state: "words", made });
    },
    (error) => trying.failed(error),
  );
  trying.over(true);
}

/** Repeats it while its error may heal by itself. Any other one is shown in place of the page. */
function whileItMayHeal(run: () => Promise<void>, onError?: (error: unknown) => void): Promise<void> {
  const over = new AbortController();
  const failed = (error: unknown): void => {
    if (mayHeal(error)) return onError?.(error);
    if (!removed.get()) account.set({ state: "failed", text: textOf(error) });
    over.abort();
  };
  return keepTrying(run, failed, over.signal);
}

/** Without permission a browser may delete what a page keeps when the disk is full. Firefox asks the person, who may take their
 * time, so that nothing waits for the answer. */
function askToKeep(): void {
  void navigator.storage?.persist?.().catch(() => false);
}

/** Makes a new account with this browser as its first device. Its recovery words are for a person to write down, and in force once
 * they are confirmed. */
export async function create(name: string, person: string, invite?: Admission): Promise<NewWords> {
  const store = await kept();
  if (!(await Account.stored(store))) await willNeedWords();
  const made = await Account.create({ base: server(), store, name, onCall, ...(invite && { invite }) });
  askToKeep();
  opened = made;
  const words = await makeWords(made.devices);
  // The account is there: without a name it can be used, and the settings ask for one.
  if (person !== "") await setDisplayName(person).catch(() => undefined);
  return words;
}

/** Other words in place of those that are not confirmed yet, as when another person has seen them. */
export async function otherWords(): Promise<NewWords> {
  return makeWords(mine().devices);
}

/** Shows the account that was just made or joined. */
export async function enter(): Promise<void> {
  await show(mine());
}

/** Asks to become a device of an account that is used elsewhere. `onDigits` gets what a person types at the other device. */
export async function joinAccount(
  address: string,
  name: string,
  onDigits: (digits: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const joining = await join(address, { store: await kept(), name, onCall });
  if (signal.aborted) return;
  onDigits(joining.digits);
  await forgetWords();
  opened = await joining.finished(signal);
  askToKeep();
}

/** Finds the account of recovery words. Nothing is changed yet. */
export async function findAccount(words: string, name: string): Promise<Recovering> {
  return recover(words, { base: server(), store: await kept(), name, onCall });
}

/** Makes this browser a primary device of the account that was found, and removes the devices that are lost. */
export async function restore(found: Recovering, lost: readonly string[]): Promise<void> {
  opened = await found.finish(lost);
  await forgetWords();
  askToKeep();
}

/** The name of this account that other users see. */
export async function displayName(): Promise<string> {
  const { client } = mine();
  return (await client.call("GET", "/v1/account")).displayName ?? "";
}

export async function setDisplayName(displayName: string): Promise<void> {
  const { client } = mine();
  await client.call("PATCH", "/v1/account", { body: { displayName } });
}

/** Removes this browser from the account where it can, and wipes its keys. */
export async function signOut(): Promise<void> {
  const found = mine();
  // The page wipes it, so it was not taken away.
  opened = undefined;
  try {
    await found.devices.leave();
  } catch (error) {
    opened = found;
    throw error;
  }
  await forgetRest();
}

/** Wipes the keys of this browser and all that it keeps, without a word to the server. */
export async function wipe(): Promise<void> {
  opened = undefined;
  await (await kept()).clear();
  await forgetRest();
}

async function forgetRest(): Promise<void> {
  await Promise.all([forgetAll(), endPushes()].map((done) => done.catch(() => undefined)));
  tellSignedOut();
}

/** What was known of an account without asking the server. */
const ME = "me";
type Me = Extract<AccountState, { state: "ready" }>;

async function show(found: Account): Promise<void> {
  const known = await recall<Me>(ME);
  if (known?.value.userId === found.userId) {
    opened = found;
    account.set(known.value);
    // Meanwhile it is read again. Without a server, the known value stays.
    void whileItMayHeal(() => readMe(found));
  } else {
    await readMe(found);
  }
  found.notices.subscribe((notice) => {
    void import("./notice-text.ts").then(
      ({ sayNotice }) => sayNotice(notice),
      () => say(`A notice cannot be shown: ${notice.is}`),
    );
  });
  // What a tab that was closed has left unfinished, as keys of sessions for people who may read them. Where the server or the network
  // fails, what a person writes there fails too.
  void found.sessions.finish().catch((error: unknown) => {
    if (!mayHeal(error) && !removed.get()) say(`What was begun before is not finished. ${textOf(error)}`);
  });
}

async function readMe(found: Account): Promise<void> {
  const [fingerprint, isPrimary] = [await found.fingerprint(), await found.isPrimary()];
  opened = found;
  setClockAhead(found.credential.clockAhead);
  const me: Me = { state: "ready", userId: found.userId, fingerprint, role: isPrimary ? "primary" : "linked" };
  const before = account.get();
  if (before.state !== "ready" || before.fingerprint !== fingerprint || before.role !== me.role) account.set(me);
  await keep("seen", ME, me);
}

/** The build of the server. */
export async function serverVersion(): Promise<string> {
  const { client } = mine();
  return (await client.call("GET", "/v1/version")).version;
}
