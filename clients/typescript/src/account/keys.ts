// The keys of this device. Scripts cannot export them if the platform allows it. The X25519 key is stored wrapped by an AES
// key, because Safari stores X25519 keys and does not give them back.

import type { Client } from "../client.js";
import { decodeExact, encode, random, utf8 } from "../protocol/bytes.js";
import { Refused } from "../errors.js";
import { isSigned, SigningKey } from "../protocol/ed25519.js";
import { BoxPair } from "../protocol/hpke.js";
import { withNewKey } from "../protocol/new-key.js";
import type { components } from "../openapi.js";
import type { Store } from "../store/store.js";

const { subtle } = globalThis.crypto;

/** The keys of a device as a store has them. */
export interface StoredKeys {
  signing: CryptoKey;
  publicKey: string;
  boxKey: string;
  wrap: CryptoKey;
  iv: Uint8Array<ArrayBuffer>;
  wrapped: ArrayBuffer;
}

/** What is stored of this device. */
export interface StoredDevice {
  keys: StoredKeys;
  /** The address of the server. */
  base: string;
  /** The account, once the device belongs to one. */
  userId?: string;
  /** The address of a linking that is not finished. */
  linking?: string;
  name: string;
}

/** A change of the account's device list, as the server takes it. */
export type ChangeDevices = components["schemas"]["ChangeDevices"];

/** This device of an account at a server. */
export interface OwnDevice {
  readonly client: Client;
  readonly store: Store;
  readonly keys: DeviceKeys;
  readonly userId: string;
}

export const DEVICE = "device";

/** The address of a linking that a reload has interrupted. */
export const unfinishedLinking = async (store: Store): Promise<string | undefined> => {
  const device = await store.get<StoredDevice>(DEVICE);
  return device?.userId === undefined ? device?.linking : undefined;
};

/** Notes the account of a device, and that its linking is over. Refused when another tab has made other keys meanwhile. */
export async function keepUser(store: Store, publicKey: string, userId: string, name?: string): Promise<void> {
  await store.update<StoredDevice>(DEVICE, (device) => {
    if (device?.keys.publicKey !== publicKey || (device.userId !== undefined && device.userId !== userId)) {
      throw new Refused("Another tab of this browser has made other keys at the same time. Load the page again.");
    }
    const { linking: _done, ...rest } = device;
    return { ...rest, userId, ...(name !== undefined && { name }) };
  });
}

/** The two key pairs of a device. */
export class DeviceKeys {
  private constructor(
    readonly signer: SigningKey,
    readonly box: BoxPair,
    private readonly stored: StoredKeys,
  ) {}

  get publicKey(): string {
    return this.signer.publicKey;
  }

  get boxKey(): string {
    return this.box.publicKey;
  }

  /** New keys. */
  static async generate(): Promise<DeviceKeys> {
    const signer = await SigningKey.generate();
    const box = (await withNewKey(() => subtle.generateKey("X25519", true, ["deriveBits"]))) as CryptoKeyPair;
    const boxKey = encode(new Uint8Array(await subtle.exportKey("raw", box.publicKey)));
    return DeviceKeys.#wrapped(signer, box.privateKey, boxKey);
  }

  /** The keys of a seed of 32 bytes, as key files of the command line have it (`ensemble-account-key-v1:` and base64url). */
  static async fromSeed(seed: Uint8Array): Promise<DeviceKeys> {
    const signer = await SigningKey.fromSeed(seed);
    const { secret, publicKey } = await BoxPair.readableOfSeed(seed);
    return DeviceKeys.#wrapped(signer, secret, publicKey);
  }

  /** Reads what a key file of the command line holds. */
  static async fromKeyFile(text: string): Promise<DeviceKeys> {
    const prefix = "ensemble-account-key-v1:";
    const seed = text.trim().startsWith(prefix) ? decodeExact(text.trim().slice(prefix.length), 32) : undefined;
    if (!seed) throw new Refused("This is no key file of Ensemble.");
    return DeviceKeys.fromSeed(seed);
  }

  static async #wrapped(signer: SigningKey, secret: CryptoKey, boxKey: string): Promise<DeviceKeys> {
    const wrap = await subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["wrapKey", "unwrapKey"]);
    const iv = random(12);
    const wrapped = await subtle.wrapKey("pkcs8", secret, wrap, { name: "AES-GCM", iv });
    const { privateKey: signing, publicKey } = signer;
    return DeviceKeys.read({ signing, publicKey, boxKey, wrap, iv, wrapped });
  }

  /** The keys as they were stored. */
  static async read(stored: StoredKeys): Promise<DeviceKeys> {
    const { signing, publicKey, boxKey, wrap, iv, wrapped } = stored;
    const unwrap = { name: "AES-GCM", iv };
    const box = await subtle.unwrapKey("pkcs8", wrapped, wrap, unwrap, "X25519", false, ["deriveBits"]);
    return new DeviceKeys(new SigningKey(signing, publicKey), new BoxPair(box, boxKey), stored);
  }

  /** Stores them, and checks that they come back and work: a browser that forgets keys must not be listed as a device. */
  async keep(store: Store, device: Omit<StoredDevice, "keys">): Promise<DeviceKeys> {
    try {
      await store.update<StoredDevice>(DEVICE, () => ({ ...device, keys: this.stored }));
      const back = await store.get<StoredDevice>(DEVICE);
      if (!back?.keys?.signing) throw new Error("The keys did not come back.");
      const keys = await DeviceKeys.read(back.keys);
      const text = utf8("check");
      if (await isSigned(this.publicKey, text, encode(await keys.signer.sign(text)))) return keys;
      throw new Error("The keys came back changed.");
    } catch (error) {
      await store.update(DEVICE, () => undefined).catch(() => undefined);
      if (error instanceof Refused) throw error;
      throw new Refused(
        "This browser cannot keep keys. Leave the private window or the lockdown mode, or use another browser.",
        { cause: error },
      );
    }
  }
}
