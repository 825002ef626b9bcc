// Recovery words: 256 random bits as 24 words of BIP-39's English list with its checksum, without its PBKDF2. They are a device on
// paper. The list of words is loaded when it is needed.

import { random, type Bytes } from "../bytes.js";
import { Refused } from "../../errors.js";
import { SigningKey } from "../ed25519.js";
import { BoxPair, hkdf } from "../hpke.js";

export class RecoveryWords {
  private constructor(private readonly bits: Bytes) {}

  static generate(): RecoveryWords {
    return new RecoveryWords(random(32));
  }

  static fromBits(bits: Bytes): RecoveryWords {
    return new RecoveryWords(bits);
  }

  /** Reads words as they were typed. A wrong one is named before anything is sent. */
  static async parse(typed: string): Promise<RecoveryWords> {
    const { bip39, list } = await load();
    const words = typed
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== "");
    const unknown = words.findIndex((word) => !list.includes(word));
    if (unknown >= 0) throw new Refused(`Word ${unknown + 1} is not in the list of recovery words.`);
    if (words.length !== 24) throw new Refused(`There are ${words.length} words. Recovery words are 24.`);
    try {
      return new RecoveryWords(Uint8Array.from(bip39.mnemonicToEntropy(words.join(" "), list)));
    } catch {
      throw new Refused("The words do not belong together: one of them is wrong, or two are in the wrong order.");
    }
  }

  /** The 24 words, in order. */
  async words(): Promise<string[]> {
    const { bip39, list } = await load();
    return bip39.entropyToMnemonic(this.bits, list).split(" ");
  }

  async key(): Promise<SigningKey> {
    return SigningKey.fromSeed(await hkdf(this.bits, "ensemble-recovery-key-v1"));
  }

  async boxPair(): Promise<BoxPair> {
    return BoxPair.fromSecret(await hkdf(this.bits, "ensemble-recovery-box-v1"));
  }
}

async function load(): Promise<{ bip39: typeof import("@scure/bip39"); list: string[] }> {
  const [bip39, { wordlist }] = await Promise.all([import("@scure/bip39"), import("@scure/bip39/wordlists/english.js")]);
  return { bip39, list: wordlist };
}
