/** A text of a session between people, as a transcript shows it. Such texts are not signed: who wrote one is what the server says. */
import type { Said } from "@ensemble/client/account";
import type { Item } from "../session/types.ts";

export function itemOf({ seq, localId, senderId, at, text, error }: Said): Item {
  if (text === undefined) {
    const note = { kind: "unreadable", why: error ?? "" } as const;
    return { id: seq, seq, localId: "", author: { kind: "unknown", why: note.why }, shown: { type: "note", note } };
  }
  const prompt = { text, attachments: [], when: "next" } as const;
  const author = { kind: "person", user: senderId, key: senderId } as const;
  // No machine has to take it.
  return {
    id: seq,
    seq,
    localId,
    at,
    author,
    shown: { type: "prompt", prompt: { ...prompt, attachments: [] }, taken: { is: "done" } },
  };
}
