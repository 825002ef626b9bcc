// Who has signed a message: the session's machine, a device of a person, or an unknown signer.

import { Distrust, isProblem, mayPass, Refused, SealError } from "../../errors.js";
import { sharesSessions, type List, type ListedDevice } from "../../protocol/lists/list.js";
import type { Author } from "../../protocol/transcript/item.js";
import type { Context } from "../context.js";
import { JUST_READ, newestList } from "../lists.js";
import { remembered } from "../remembered.js";
import type { Session } from "../sessions/known.js";

/** How much is remembered: signers, and users with every list that they had. */
const MOST_SIGNERS = 2_000;
const MOST_USERS = 200;

/** The entries of a key in all lists of a user. `goneIn`: the version after the last list in which it commanded. */
type Ever = (key: string) => ListedDevice[] & { goneIn: number };

/** Finds authors by the owner's newest known list. A key that was ever listed counts for what it has signed; the machine decides about
 * commands by the newest lists. */
export class Authors {
  readonly #found = new Map<string, Promise<Author>>();
  /** The list of the session's owner by which the authors were found. */
  #list: Promise<List> | undefined;
  /** The newest version that the machine has named and the server was asked for. */
  #asked = 0;
  readonly #ever = new Map<string, Promise<Ever>>();

  constructor(
    private readonly context: Context,
    private readonly session: Session,
  ) {}

  /** Rejects only when the author cannot be determined now, or when the lists of the session's owner are not to be trusted. */
  of(user: string, key: string): Promise<Author> {
    return remembered(this.#found, `${user} ${key}`, MOST_SIGNERS, () => this.#find(user, key));
  }

  /** The machine has named this version of the owner's list. A server that does not show it is asked only once. */
  async learn(version: number): Promise<void> {
    if (version <= this.#asked || version <= (await this.version())) return;
    await this.askAgain();
    this.#asked = version;
  }

  /** Asks for the list that the machine has named, also when the server has kept it back before. */
  async askAgain(): Promise<void> {
    try {
      await this.#read(0);
    } catch (error) {
      // A server that was restored from a backup may have no newer list than the known one.
      if (!isAboutTheUser(error)) throw error;
    }
  }

  /** The version of the owner's list by which authors are found. */
  async version(): Promise<number> {
    return (await this.#known()).version;
  }

  #known(): Promise<List> {
    if (this.#list) return this.#list;
    const list = this.context.people.list(this.session.ownerId);
    this.#list = list;
    list.catch(() => (this.#list = undefined));
    return list;
  }

  /** The newest list, read at most `maxAge` milliseconds ago. If it is newer than the known one, authors are found again. */
  async #read(maxAge: number): Promise<List> {
    const [known, list] = [await this.#known(), await this.context.people.list(this.session.ownerId, maxAge)];
    if (list.version <= known.version) return known;
    this.#list = Promise.resolve(list);
    this.#found.clear();
    return list;
  }

  async #find(user: string, key: string): Promise<Author> {
    if (user === this.session.ownerId) return this.#ofOwner(user, key);
    try {
      const list = await this.context.people.list(user);
      if (list.commands(key)) return { kind: "person", user, key };
      const ever = await this.#everOf(user, list);
      return ever(key).some(({ role }) => sharesSessions(role)) ? { kind: "person", user, key } : unknownSigner(user);
    } catch (error) {
      // A guest can write any user into a message. That must not close the session for the others.
      if (!isAboutTheUser(error)) throw error;
      return { kind: "unknown", why: `the devices of ${user} are not known: ${error.message}` };
    }
  }

  async #ofOwner(user: string, key: string): Promise<Author> {
    // A key that is not known may have been added a moment ago.
    let owner = await this.#known();
    if (!owner.device(key)) owner = await this.#read(JUST_READ);
    const machine = this.session.machineId ?? undefined;
    const entry = owner.device(key);
    if (entry?.role === "machine" && machine !== undefined && entry.machineId === machine) return { kind: "host" };
    if (owner.commands(key)) return { kind: "person", user, key };
    const was = (await this.#everOf(user, owner))(key);
    if (was.some(({ role }) => sharesSessions(role))) return { kind: "person", user, key, removedIn: was.goneIn };
    // Of a machine that was removed nothing is hosted any more, so its transcript can be read. One that has another key now signs
    // with that.
    if (machine === undefined || owner.machine(machine)) return unknownSigner(user);
    return was.some(({ machineId }) => machineId === machine) ? { kind: "host" } : unknownSigner(user);
  }

  /** Every list of the user up to this one, read once. */
  #everOf(user: string, list: List): Promise<Ever> {
    return remembered(this.#ever, `${user} ${list.digest}`, MOST_USERS, async () => {
      const entries = new Map<string, ReturnType<Ever>>();
      let newest = 0;
      await newestList(this.context.client, user, { account: list.body.account }, ({ body }) => {
        newest = body.version;
        for (const device of body.devices) {
          const all = entries.get(device.key) ?? none();
          const isKnown = all.some(({ role, machineId }) => role === device.role && machineId === device.machineId);
          if (!isKnown) all.push(device);
          if (sharesSessions(device.role)) all.goneIn = body.version + 1;
          entries.set(device.key, all);
        }
      });
      // A key that the newest list has is not gone.
      for (const all of entries.values()) if (all.goneIn > newest) all.goneIn = Infinity;
      return (key) => entries.get(key) ?? none();
    });
  }
}

const none = (): ReturnType<Ever> => Object.assign([], { goneIn: 0 });

const unknownSigner = (user: string): Author => ({ kind: "unknown", why: `not signed by a device of ${user}` });

/** Whether the server has answered about the user, or has shown bad lists: asked again, it answers the same. */
function isAboutTheUser(error: unknown): error is Error {
  if (isProblem(error)) return error.status !== 401 && !mayPass(error);
  return error instanceof Refused || error instanceof Distrust || error instanceof SealError;
}
