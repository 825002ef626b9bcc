// Other users: their names, and their newest device lists, checked from the account keys that were seen first.

import { Refused } from "../errors.js";
import { fingerprint, type List } from "../protocol/lists/list.js";
import { MOST_NAME_BYTES, nearestName } from "../protocol/lists/name.js";
import { knownList, newestList, OldList, rememberList } from "./lists.js";
import type { OwnReader } from "./own.js";
import type { OwnDevice } from "./keys.js";
import { readUser, type Pins } from "./pins.js";

/** The most bytes of a name with its number. */
const MOST_NAME = MOST_NAME_BYTES + 16;

/** A name that someone else has chosen, as one that does not deceive: in one line, in NFC and without hidden characters. */
export const shownName = (name: string): string => nearestName(name, MOST_NAME) ?? "Guest";

/** How long a list counts as the newest one if the server says that it is, in milliseconds. */
const A_DAY = 86_400_000;

export class People {
  readonly #lists = new Map<string, { list: List; at: number }>();
  readonly #reading = new Map<string, Promise<List>>();
  readonly #names = new Map<string, Promise<string | undefined>>();

  constructor(
    private readonly device: OwnDevice,
    private readonly own: OwnReader,
    private readonly pins: Pins,
  ) {}

  /** What this account calls a user. Undefined: it has no name for them. */
  async called(user: string): Promise<string | undefined> {
    const people = (await this.pins.shared()).state["people"] as Record<string, { name?: unknown }> | undefined;
    const name = people?.[user]?.name;
    return typeof name === "string" ? shownName(name) : undefined;
  }

  /** The name that the server gives for a user. */
  name(user: string): Promise<string | undefined> {
    let name = this.#names.get(user);
    if (!name) {
      name = readUser(this.device.client, user).then(({ displayName }) => displayName?.trim() || undefined);
      name.catch(() => this.#names.delete(user));
      this.#names.set(user, name);
    }
    return name;
  }

  /** The fingerprint of a user's account key. */
  async fingerprint(user: string): Promise<string> {
    return fingerprint((await this.list(user)).body.account);
  }

  /** The newest device list of a user, not older than `maxAge` milliseconds. The account key that was first seen is remembered, and
   * another one later is refused. */
  async list(user: string, maxAge = 60_000): Promise<List> {
    if (user === this.device.userId) return (await this.own.read(maxAge)).list;
    const cached = this.#lists.get(user);
    if (cached && performance.now() - cached.at <= maxAge) return cached.list;
    // A page of sessions may have many of one user. Without an age the list must be one that is asked for from now on.
    const reading = maxAge === 0 ? undefined : this.#reading.get(user);
    if (reading) return reading;
    const read = this.#read(user).finally(() => this.#reading.delete(user));
    this.#reading.set(user, read);
    return read;
  }

  /** The same, where the server names the newest version. One that this program has read is not read again for a day. */
  async listSince(user: string, newest: number | null, maxAge: number): Promise<List> {
    const cached = this.#lists.get(user);
    const isNewest = newest !== null && cached !== undefined && cached.list.version >= newest;
    return this.list(user, isNewest ? A_DAY : maxAge);
  }

  async #read(user: string): Promise<List> {
    const { client, store } = this.device;
    const account = await this.pins.accountKey(user);
    const known = await knownList(store, user);
    if (known && known.body.account !== account) throw new OldList();
    const list = await newestList(client, user, known ? { list: known } : { account });
    if (!list) throw new Refused(`User ${user} has no devices yet: they have not signed in with a client that creates them.`);
    await rememberList(store, user, list);
    this.#lists.set(user, { list, at: performance.now() });
    return list;
  }
}
