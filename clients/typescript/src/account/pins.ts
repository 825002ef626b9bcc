// The account keys of other users that were seen first, on any device of this account, and the state in which the devices share them.

import type { Client } from "../client.js";
import { Distrust, isNotFound, isProblem, Refused, SealError } from "../errors.js";
import { utf8Length } from "../protocol/bytes.js";
import { asObject } from "../protocol/seal/ring.js";
import { openClientState, sealClientState } from "../protocol/seal/signed-ring.js";
import { FRESH } from "./lists.js";
import type { Own, OwnReader } from "./own.js";
import type { OwnDevice } from "./keys.js";

/** What the clients of an account share. Members that are not known here are kept. */
export type Shared = { pinned?: Record<string, string> } & Record<string, unknown>;

/** The state that this device has used last, as it was sealed. */
interface KeptState {
  version: number;
  sealed: string;
}

const KEPT = "shared state";
/** At most this many versions are written to get above the one that is kept. */
const MOST_BEHIND = 1_000;

const pin = (user: string): string => `pin ${user}`;

export class Pins {
  constructor(
    private readonly device: OwnDevice,
    private readonly own: OwnReader,
  ) {}

  /** The account key of a user: the one that was first seen. */
  async accountKey(user: string): Promise<string> {
    const { store } = this.device;
    const seen = (await readUser(this.device.client, user)).publicKey;
    const known = await store.get<string>(pin(user));
    const first = known ?? (await this.#pinnedAnywhere(user, seen));
    if (first !== seen) {
      throw new Distrust(
        `The account key of user ${user} is not the one that was seen before. Nothing was done. Ask them for the fingerprint that ` +
          "they see; if it has really changed, they have another account, and another id.",
      );
    }
    if (known === undefined) await store.update<string>(pin(user), (now) => now ?? first);
    return first;
  }

  /** What the devices of the account share, and the version that the server has. A server that was restored shows an older one than this
   * device has used, and a device that was removed may have written it: then the one that was used last counts. One that does not open
   * is an error only where none is kept; with `orEmpty` not even there. */
  async shared(orEmpty = false): Promise<{ state: Shared; version: number }> {
    const { client, store } = this.device;
    const { clientState, clientStateVersion } = await client.call("GET", "/v1/account");
    const version = clientStateVersion ?? 0;
    const kept = await store.get<KeptState>(KEPT);
    if (clientState && version >= (kept?.version ?? 0)) {
      const state = await this.#shown(clientState, version).catch((error: unknown) => {
        if (!(error instanceof SealError) || (!kept && !orEmpty)) throw error;
        return undefined;
      });
      if (state) await this.#keep({ sealed: clientState, version });
      if (state) return { state, version };
    }
    // The signer of the kept one was listed when it was kept.
    return { state: kept ? (await opened(kept, await this.own.read(Number.POSITIVE_INFINITY))).state : {}, version };
  }

  /** The state that the server shows, if a device that is listed has signed it. */
  async #shown(sealed: string, version: number): Promise<Shared | undefined> {
    const judged = async (own: Own): Promise<Shared | undefined> => {
      const { state, signer } = await opened({ sealed, version }, own);
      return own.list.commands(signer) ? state : undefined;
    };
    const state = await judged(await this.own.read(Number.POSITIVE_INFINITY)).catch((error: unknown) => {
      if (!(error instanceof SealError)) throw error;
      return undefined;
    });
    // A device that was linked since this program has read the list may have written it, or it was sealed to a newer key.
    return state ?? judged(await this.own.read(0));
  }

  async #keep(state: KeptState): Promise<void> {
    await this.device.store.update<KeptState>(KEPT, (kept) => (kept && kept.version >= state.version ? kept : state));
  }

  /** Changes what the devices share. `change` may be called again, when another device was faster. */
  share(change: (state: Shared) => Shared | undefined): Promise<Shared> {
    return this.#share(change);
  }

  /** Signs it again after a device was removed: what that one has signed counts no more. `before` was read before the removal; what others
   * have written since is kept, and the keys that were seen first stay. Invitations of before do not. */
  async signAgain(before: Shared): Promise<void> {
    await this.#share((state, version) => {
      const isNothing = version === 0 && Object.keys(before).length === 0;
      if (isNothing) return undefined;
      // The removed device knows the secrets of these invitations.
      const known = new Set(Object.keys(before["invites"] ?? {}));
      const invites = Object.entries(state["invites"] ?? {}).filter(([id]) => !known.has(id));
      const { invites: _of_before, ...kept } = { ...before, ...state };
      const pinned = { ...state.pinned, ...before.pinned };
      return { ...kept, ...(invites.length > 0 && { invites: Object.fromEntries(invites) }), pinned };
    }, true);
  }

  async #share(change: (state: Shared, version: number) => Shared | undefined, orEmpty = false): Promise<Shared> {
    for (let tries = 0; ; tries++) {
      const { state, version } = await this.shared(orEmpty);
      const next = change(structuredClone(state), version);
      if (!next) return state;
      try {
        await this.#write(next, version);
        return next;
      } catch (error) {
        if (!isProblem(error, "VERSION_MISMATCH") || tries >= 3) throw error;
      }
    }
  }

  /** Replaces the version that the server has shown. A server that was restored gets it once for each version that it lacks, so that no
   * device takes it for an old one. */
  async #write(state: Shared, shown: number): Promise<void> {
    const { client, keys, store } = this.device;
    const { list, contents } = await this.own.read(FRESH);
    const json = JSON.stringify(state);
    if (utf8Length(json) > 48_000) throw new Refused("What your devices share has grown too long.");
    const newest = Math.max(shown, (await store.get<KeptState>(KEPT))?.version ?? 0);
    if (newest - shown > MOST_BEHIND) throw new Refused("The server has a much older state than this device has seen.");
    for (let expectedVersion = shown; expectedVersion <= newest; expectedVersion++) {
      const version = expectedVersion + 1;
      const clientState = await sealClientState(json, await contents.publicKey(), list.body.account, version, keys.signer);
      await client.call("PATCH", "/v1/account", { body: { clientState, expectedVersion } });
      await this.#keep({ sealed: clientState, version });
    }
  }

  async #pinnedAnywhere(user: string, seen: string): Promise<string> {
    let known: string | undefined;
    const pinned = this.share((state) => {
      known = state.pinned?.[user];
      return known === undefined ? { ...state, pinned: { ...state.pinned, [user]: seen } } : undefined;
    });
    // A state that has grown too long is no reason to do nothing: this device remembers the key itself.
    await pinned.catch((error: unknown) => {
      if (!(error instanceof Refused) && !isProblem(error, "VERSION_MISMATCH")) throw error;
    });
    return known ?? seen;
  }
}

/** A user as the server shows them. */
export async function readUser(
  client: Client,
  user: string,
): Promise<{ publicKey: string; displayName?: string | null | undefined }> {
  try {
    return await client.call("GET", "/v1/users/{id}", { path: { id: user } });
  } catch (error) {
    if (isNotFound(error)) throw new Refused(`There is no user ${user}.`, { cause: error });
    throw error;
  }
}

async function opened({ sealed, version }: KeptState, { list, contents }: Own): Promise<{ state: Shared; signer: string }> {
  const { plaintext, signer } = await contents.openWith((pair) => openClientState(sealed, pair, list.body.account, version));
  return { state: asObject(plaintext) as Shared, signer };
}
