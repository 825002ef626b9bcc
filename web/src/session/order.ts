/** What of a transcript belongs together although it was written at different times. */
import type { Card, Item } from "./types.ts";

/** Prompts stand where their turn begins: one that waited was written while another turn was at work. */
export function inOrder(items: readonly Item[]): readonly Item[] {
  const begun = new Set<string>();
  for (const { shown } of items)
    if (shown.type === "turn" && shown.turn.state === "started" && shown.turn.promptId) begun.add(shown.turn.promptId);
  const prompts = new Map<string, Item>();
  for (const item of items)
    if (item.shown.type === "prompt" && item.author.kind === "person" && begun.has(item.localId))
      prompts.set(item.localId, item);
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
  for (const { shown, author } of items)
    if (shown.type === "answer" && author.kind === "person")
      found.set(`${shown.answer.requestId} ${author.user}`, shown.answer);
  return found;
}

/** The answer that the machine has taken for the request of this item. */
export function answerOf({ shown }: Item, answers: ReadonlyMap<string, Answered>): Answered | undefined {
  return shown.type === "card" ? answers.get(`${shown.card.requestId} ${shown.card.resolved?.by ?? ""}`) : undefined;
}

export interface Marks {
  /** What stands on the row of an item, by its id. */
  said: ReadonlyMap<number, string>;
  /** Items that have no row of their own, because another one says it. */
  onOther: ReadonlySet<number>;
}

/** A request and its answer are a mark on their step. What fails again and again is one row that counts. */
export function marksOf(items: readonly Item[], saidOf: (card: Card) => string): Marks {
  const said = new Map<number, string>();
  const onOther = new Set<number>();
  const tools = new Map<string, number>();
  for (const { id, shown } of items) if (shown.type === "tool") tools.set(shown.call.toolCallId, id);
  let [last, times]: [Item | undefined, number] = [undefined, 1];
  for (const item of items) {
    const { shown } = item;
    if (shown.type === "card" && shown.card.asks.type === "permission" && shown.card.resolved) {
      const tool = tools.get(shown.card.asks.toolCallId ?? "");
      if (tool !== undefined) {
        said.set(tool, saidOf(shown.card));
        onOther.add(item.id);
      }
    }
    const isAgain = shown.type === "error" && last?.shown.type === "error" && last.shown.failure.code === shown.failure.code;
    if (isAgain && last) onOther.add(last.id);
    times = isAgain ? times + 1 : 1;
    if (isAgain) said.set(item.id, `${times} times`);
    last = item;
  }
  return { said, onOther };
}
