// The content ring of an account: one X25519 secret for each content epoch. Each device that may open contents has the whole ring,
// sealed to its own box key.

import { Distrust, SealError } from "../../errors.js";
import type { List, ListedDevice } from "../lists/list.js";
import { BoxPair, openWith, sealTo } from "../hpke.js";
import { Secrets } from "./ring.js";

/** The format of a content ring, its first byte. */
const VERSION = 1;

const binding = (account: string, device: string): string => `ensemble-content-ring-v1\n${account}\n${device}`;

export class ContentRing {
  readonly #ring: Secrets;
  readonly #pairs = new Map<number, Promise<BoxPair>>();

  private constructor(ring: Secrets) {
    this.#ring = ring;
  }

  /** The ring of a new account. */
  static generate(): ContentRing {
    return new ContentRing(Secrets.generate());
  }

  /** Opens the ring of a device, and checks that its newest secret is that of the list. */
  static async open(sealed: string, pair: BoxPair, device: string, list: List): Promise<ContentRing> {
    const opened = await openWith(pair, sealed, binding(list.body.account, device));
    const ring = new ContentRing(Secrets.fromBytes(opened, VERSION, 0));
    if (ring.epoch !== list.body.contentEpoch || (await ring.publicKey()) !== list.body.contentPublicKey) {
      throw new Distrust("The server gave the content keys of another device list.");
    }
    return ring;
  }

  /** This ring with a secret for the next content epoch. */
  next(): ContentRing {
    return new ContentRing(this.#ring.next());
  }

  get epoch(): number {
    return this.#ring.epoch;
  }

  /** `0x01 | first epoch (4) | secrets (32 each)`. */
  get bytes(): Uint8Array<ArrayBuffer> {
    return this.#ring.toBytes(VERSION);
  }

  /** The key pair of an epoch (default: the newest). */
  pair(epoch: number = this.epoch): Promise<BoxPair> {
    let pair = this.#pairs.get(epoch);
    if (!pair) {
      pair = BoxPair.fromSecret(this.#ring.of(epoch));
      this.#pairs.set(epoch, pair);
    }
    return pair;
  }

  /** The public half of the newest epoch, to which everything of the account is sealed now. */
  async publicKey(): Promise<string> {
    return (await this.pair()).publicKey;
  }

  /** Tries the epochs from the newest on: what is sealed does not say with which it was sealed. */
  async openWith<T>(open: (pair: BoxPair) => Promise<T>): Promise<T> {
    let refused: unknown = new SealError("refused", "There is no key.");
    for (let epoch = this.epoch; epoch >= 1; epoch--) {
      try {
        return await open(await this.pair(epoch));
      } catch (error) {
        if (!(error instanceof SealError)) throw error;
        refused = error;
      }
    }
    throw refused;
  }

  /** Seals the ring to a device of an account. */
  sealTo(device: ListedDevice, account: string): Promise<string> {
    return sealTo(device.boxKey, this.bytes, binding(account, device.key));
  }
}
