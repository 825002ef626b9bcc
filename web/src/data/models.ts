/** The models that agents offered in the sessions which this browser has seen: a new session can begin with one of them. */
import type { Choice } from "../session/types.ts";
import { keep, recall } from "./kept.ts";

const NAME = "models";
type Known = Record<string, readonly Choice[]>;

const of = (machine: string, agent: string): string => `${machine} ${agent}`;
const written = new Map<string, string>();

export async function noteModels(machine: string, agent: string, models: readonly Choice[]): Promise<void> {
  const [name, text] = [of(machine, agent), JSON.stringify(models)];
  if (models.length === 0 || written.get(name) === text) return;
  written.set(name, text);
  const known = (await recall<Known>(NAME))?.value ?? {};
  await keep("seen", NAME, { ...known, [name]: models });
}

export async function modelsOf(machine: string, agent: string): Promise<readonly Choice[]> {
  return (await recall<Known>(NAME))?.value[of(machine, agent)] ?? [];
}
