/** Prompts that may not have come through, over the field to write in. */
import { useEffect } from "react";
import { useStore } from "../base/store.ts";
import { textOf } from "../data/failure.ts";
import type { SessionFeed } from "../data/feed.ts";
import { dropUnsent, keepUnsent, type Unsent as One, unsent } from "../data/unsent.ts";
import { oneLine, visible } from "../text/visible.ts";

/** Sends a prompt. What fails is kept with its id. */
export function sendPrompt(feed: SessionFeed, one: Omit<One, "error">): void {
  keepUnsent(feed.id, { ...one, error: undefined });
  feed.prompt(one.text, one.when, one.localId).then(
    () => dropUnsent(feed.id, one.localId),
    (caught: unknown) => keepUnsent(feed.id, { ...one, error: textOf(caught) }),
  );
}

export function Unsent({ feed, onEdit }: { feed: SessionFeed; onEdit: (text: string) => void }) {
  const all = useStore(unsent).get(feed.id);
  const { items } = useStore(feed.view);
  useEffect(() => {
    // It has come through after all.
    for (const { localId } of all ?? []) if (items.some((item) => item.localId === localId && item.shown.type === "prompt")) dropUnsent(feed.id, localId);
  }, [all, items, feed.id]);
  const failed = (all ?? []).filter(({ error }) => error !== undefined);
  return failed.map((one) => (
    <div key={one.localId} className="banner bad unsent" role="alert">
      <p><bdi>{oneLine(one.text, 200)}</bdi></p>
      <p>Not sent: {visible(one.error ?? "")}</p>
      <div className="actions">
        <button type="button" className="button small" onClick={() => sendPrompt(feed, one)}>Send again</button>
        <button type="button" className="button small plain" onClick={() => {
          dropUnsent(feed.id, one.localId);
          onEdit(one.text);
        }}>Edit</button>
      </div>
    </div>
  ));
}
