// What a person has agreed to in a directory: that a machine works for it, and that an agent there asks for nothing. It is asked once.

import type { Context } from "../context.js";

/** An agreement. */
interface Agreed {
  directory: string;
  /** The key of the machine: one with another key is another machine. */
  machine: string;
  /** The agent may do everything there. */
  everything: boolean;
}

const NAME = "agreed";
/** How many are kept. For older ones the person is asked again. */
const MOST = 1_000;

/** All machines. A person who names none of them lets each of them do it. */
const ANY = "any machine";

const keyOf = async (context: Context, id: string | undefined): Promise<string | undefined> =>
  id === undefined ? ANY : (await context.own()).list.machine(id)?.key;

/** Whether everything was agreed to on this machine in this directory, where something was. */
export async function agreedTo(context: Context, id: string | undefined, directory: string): Promise<boolean | undefined> {
  const key = await keyOf(context, id);
  const all = (await context.store.get<Agreed[]>(NAME)) ?? [];
  return all.find((one) => one.machine === key && one.directory === directory)?.everything;
}

/** Remembers what a person has agreed to. */
export async function agree(context: Context, id: string | undefined, directory: string, everything: boolean): Promise<void> {
  const machine = await keyOf(context, id);
  if (machine === undefined) return;
  await context.store.update<Agreed[]>(NAME, (all = []) => {
    const isIt = (one: Agreed): boolean => one.machine === machine && one.directory === directory;
    const now = { directory, machine, everything: everything || all.some((one) => isIt(one) && one.everything) };
    return [now, ...all.filter((one) => !isIt(one))].slice(0, MOST);
  });
}
