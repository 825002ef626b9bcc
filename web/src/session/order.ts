/** What of a transcript belongs together although it was written at different times. */
import type { Item } from "./types.ts";

/** Prompts stand where their turn begins: one that waited was written while another turn was at work. */
export function inOrder(items: readonly Item[]): readonly Item[] {
  const begun = new Set<string>();
  for (const { shown } of items) if (shown.type === "turn" && shown.turn.state === "started" && shown.turn.promptId) begun.add(shown.turn.promptId);
  const prompts = new Map<string, Item>();
  for (const item of items) if (item.shown.type === "prompt" && item.author.kind === "person" && begun.has(item.localId)) prompts.set(item.localId, item);
  if (prompts.size === 0) return items;
  const moved = new Set(prompts.values());
  return items.flatMap((item) => {
    if (moved.has(item)) return [];
    const { shown } = item;
    const prompt = shown.type === "turn" && shown.turn.state === "started" ? prompts.get(shown.turn.promptId ?? "") : undefined;
    return prompt ? [prompt, item] : [item];
  });
}

type Answered = Extract<Item["shown"], { type: "answer" }>["answer"];

/** The answers of people, by the request and who has signed them. */
export function answersIn(items: readonly Item[]): ReadonlyMap<string, Answered> {
  const found = new Map<string, Answered>();
  for (const { shown, author } of items) if (shown.type === "answer" && author.kind === "person") found.set(`${shown.answer.requestId} ${author.user}`, shown.answer);
  return found;
}

/** The answer that the machine has taken for the request of this item. */
export function answerOf({ shown }: Item, answers: ReadonlyMap<string, Answered>): Answered | undefined {
  return shown.type === "card" ? answers.get(`${shown.card.requestId} ${shown.card.resolved?.by ?? ""}`) : undefined;
}
