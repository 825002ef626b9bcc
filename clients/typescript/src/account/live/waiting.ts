// Messages at the end of a session that came before their key. They are not kept: they are read again from the history, in order, when
// the key has come.

import type { Client } from "../../client.js";
import { pause, sleep } from "../../retry.js";
import { followHints, type Hint } from "../../streams.js";
import type { Incoming } from "../../protocol/transcript/view.js";
import type { Watched } from "./watch.js";
import type { components } from "../../openapi.js";

type Sealed = components["schemas"]["Message"];

export interface Waiting {
  /** The `seq` of the first message that waits, and the epoch of its key. */
  first: number;
  epoch: number;
  /** The `seq` of the newest message that came. */
  newest: number;
}

/** Opens messages that follow each other, up to the first one that lacks its key. Their authors are found by one version of the owner's
 * list, `list`. */
export async function inOrder(
  watched: Watched,
  messages: readonly Sealed[],
): Promise<{ opened: Incoming[]; waiting: Waiting | undefined; list: number }> {
  let list: number;
  let all: (Incoming | number)[];
  do {
    list = await watched.authors.version();
    // Together: checking a signature waits for other threads.
    all = await Promise.all(messages.map((message) => watched.opened(message)));
    await watched.learn(all);
    // A list is also read when a key is not in the known one.
  } while ((await watched.authors.version()) !== list);
  const opened: Incoming[] = [];
  for (const [at, one] of all.entries()) {
    if (typeof one === "number") {
      const [first, newest] = [messages[at]?.seq ?? 0, messages.at(-1)?.seq ?? 0];
      return { opened, waiting: { first, epoch: one, newest }, list };
    }
    opened.push(one);
  }
  return { opened, waiting: undefined, list };
}

/** The longest wait, in milliseconds, before a stream of hints that has ended is followed again. */
const LONGEST_PAUSE = 10_000;

/** How often missing keys and lists are looked for, in milliseconds: a list of another account comes with no hint. */
const LOOKS_AGAIN_AFTER = 60_000;

/** Says when a key of a session, or a list of its owner, may have come. The session's own stream does not tell of a key that a guest is
 * given. */
export class KeyHints {
  readonly #stop = new AbortController();
  #hints: AsyncGenerator<Hint, void, undefined> | undefined;
  /** How often the stream has ended since it gave a hint. */
  #ends = 0;
  #next: Promise<void> | undefined;
  /** The next hint that matters. */
  #found: Promise<void> | undefined;

  constructor(
    private readonly client: Client,
    private readonly session: string,
  ) {}

  /** The next one, at the latest when there is a connection. It is the same one until it was taken. */
  next(): Promise<void> {
    return (this.#next ??= this.#wait());
  }

  taken(): void {
    this.#next = undefined;
  }

  end(): void {
    this.#stop.abort();
  }

  async #wait(): Promise<void> {
    const isFound = new AbortController();
    const late = sleep(LOOKS_AGAIN_AFTER, AbortSignal.any([this.#stop.signal, isFound.signal]));
    this.#found ??= this.#find().finally(() => (this.#found = undefined));
    await Promise.race([this.#found, late.catch(() => undefined)]);
    isFound.abort();
  }

  async #find(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#hints ??= followHints(this.client, { signal });
      // A server that refuses the hints does not end the session that is followed.
      const hint = await this.#hints.next().then(
        (next) => (next.done ? undefined : next.value),
        () => undefined,
      );
      if (hint === undefined) {
        this.#hints = undefined;
        await sleep(pause(++this.#ends, undefined, { longest: LONGEST_PAUSE }), signal).catch(() => undefined);
      } else {
        // It comes with each connection.
        if (hint.kind !== "all") this.#ends = 0;
        if (hint.kind === "all" || hint.kind === "device" || hint.id === this.session) return;
      }
    }
  }
}
