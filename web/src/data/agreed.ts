/** What a person agrees to before an agent begins somewhere. Each is asked once in this browser, for the key of the machine and the directory. */
import type { Account } from "@ensemble/client/account";
import { mine } from "./account.ts";

type Known = Pick<Account["machines"], "agreed" | "agree">;

export interface Work {
  /** Absent: the first of all machines that takes it. */
  machine: string | undefined;
  directory: string;
  /** The agent asks for nothing. */
  isBypass: boolean;
}

/** A person who names no machine lets each of them do it, so only work that asks for nothing is asked about. */
export async function notAgreed(all: readonly Work[], known: Known = mine().machines): Promise<Work[]> {
  const found = new Map<string, Work>();
  for (const work of all) {
    const { machine, directory, isBypass } = work;
    const agreed = await known.agreed(machine, directory);
    const isNew = agreed === undefined && machine !== undefined;
    if (!isNew && (agreed || !isBypass)) continue;
    const name = JSON.stringify([machine, directory]);
    // Consent to everything in a directory includes less.
    if (!found.get(name)?.isBypass) found.set(name, work);
  }
  return [...found.values()];
}

export async function agree(all: readonly Work[], known: Known = mine().machines): Promise<void> {
  for (const { machine, directory, isBypass } of all) await known.agree(machine, directory, isBypass);
}

/** What is to be asked after a person has agreed to this: the work may be other work by now. A machine without a key is asked about each
 * time. */
export async function stillToAsk(
  all: readonly Work[],
  agreed: readonly Work[],
  known: Known = mine().machines,
): Promise<Work[]> {
  await agree(agreed, known);
  const open = await notAgreed(all, known);
  const isAgreed = ({ machine, directory, isBypass }: Work): boolean =>
    agreed.some((one) => one.machine === machine && one.directory === directory && (one.isBypass || !isBypass));
  return open.every(isAgreed) ? [] : open;
}
