// What all parts of an account share: how this device reaches the server, its keys, and what it keeps.

import type { Client, ClientOptions } from "../client.js";
import type { DeviceCredential, Token } from "../credential.js";
import { fingerprint } from "../protocol/lists/list.js";
import type { Names } from "../protocol/lists/name.js";
import { Overflow } from "../store/overflow.js";
import type { Store } from "../store/store.js";
import type { DeviceKeys } from "./keys.js";
import { Notices } from "./notice.js";
import { OwnReader, type Own } from "./own.js";
import type { ChangeDevices } from "./keys.js";
import { People } from "./people.js";
import { Pins } from "./pins.js";

/** How to reach the server, and where this device keeps what it knows. */
export interface AccountOptions extends Omit<ClientOptions, "credential"> {
  store: Store;
}

export class Context {
  /** What does not fit lasts as long as this program. */
  readonly store: Store;
  readonly pins: Pins;
  readonly people: People;
  readonly notices = new Notices();
  readonly #own: OwnReader;

  constructor(
    readonly client: Client,
    store: Store,
    readonly keys: DeviceKeys,
    readonly userId: string,
    readonly credential: DeviceCredential,
  ) {
    this.store = new Overflow(store);
    this.#own = new OwnReader(this);
    this.pins = new Pins(this, this.#own);
    this.people = new People(this, this.#own, this.pins);
  }

  /** The account's list and content ring. They are read again when they are older than `maxAge` milliseconds. */
  own(maxAge: number = Number.POSITIVE_INFINITY): Promise<Own> {
    return this.#own.read(maxAge);
  }

  /** The names of the devices and machines in that list. */
  names(): Promise<Names> {
    return this.#own.names();
  }

  /** Takes a list and a ring that this device has just made, with what the server received for them. */
  adopt(own: Own, change: ChangeDevices): Promise<void> {
    return this.#own.adopt(own, change);
  }

  /** The fingerprint of the account, for people to compare. */
  async fingerprint(): Promise<string> {
    return fingerprint((await this.own()).list.body.account);
  }

  /** Whether this device may sign lists. */
  async isPrimary(): Promise<boolean> {
    return (await this.own()).list.device(this.keys.publicKey)?.role === "primary";
  }

  /** The token of this device. */
  token(): Promise<Token> {
    return this.credential.signIn(this.client);
  }

  /** Forgets everything that this device knows, its keys among it. The server is not asked to revoke anything: the device stays
   * listed until a primary device removes it, or `devices.leave` was called before. */
  async forget(): Promise<void> {
    await this.store.clear();
  }
}

/** What a context is made of. */
export type Opened = ConstructorParameters<typeof Context>;
