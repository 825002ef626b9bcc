/**
 * The recovery words of an account that was made here, until its person has confirmed that they are written down. Until then they are in
 * force nowhere, and no other device and no server has them: a reload would lose them. So this browser keeps them with the key that
 * guards all that it keeps (`kept.ts`), shows them again when it is opened, and forgets them as soon as they are confirmed.
 */
import { Refused } from "@ensemble/client";
import type { Account, NewWords } from "@ensemble/client/account";
import { forget, keep, recall } from "./kept.ts";

const NAME = "recovery words";

/** Without words: the account is being made, and gets them then. */
interface Kept {
  words?: string[];
}

type Devices = Pick<Account["devices"], "newWords" | "sameWords">;

/** An account is about to be made here. A page that is left before the words are there makes them when it is opened again. */
export async function willNeedWords(): Promise<void> {
  await keep("typed", NAME, {} satisfies Kept);
}

/** Words for the account, kept until they are confirmed. They take the place of those that were kept before. */
export async function makeWords(devices: Devices): Promise<NewWords> {
  const made = await devices.newWords();
  await keep("typed", NAME, { words: made.words } satisfies Kept);
  return untilConfirmed(made);
}

/** The words that a person has not confirmed yet. Undefined: there are none, and no call is made. */
export async function unconfirmedWords(devices: Devices): Promise<NewWords | undefined> {
  const found = await recall<Kept>(NAME);
  if (!found) return undefined;
  const { words } = found.value;
  if (words) return untilConfirmed(await devices.sameWords(words));
  try {
    return await makeWords(devices);
  } catch (error) {
    // This browser was linked instead, and makes no words.
    if (!(error instanceof Refused)) throw error;
    await forgetWords();
    return undefined;
  }
}

/** The account here is another one, or has other words. */
export async function forgetWords(): Promise<void> {
  await forget(NAME);
}

function untilConfirmed({ words, confirm }: NewWords): NewWords {
  return {
    words,
    confirm: async () => {
      await confirm();
      await forgetWords();
    },
  };
}
