// The transcript of a live session: what its messages say, who signed them, and what a screen shows (docs/TRANSCRIPT.md).

export * from "./body.js";
export { bodyDigest, openEnvelope, signBody, type Envelope } from "./envelope.js";
export { readFrame, type Frame, type Growing } from "./frame.js";
export { attachmentSize, type Author, type Card, type Item, type Note, type Shown, type Taken } from "./item.js";
export { View, type Changed, type Incoming, type Keep } from "./view.js";
export { visible } from "./visible.js";
export type { Word } from "./shape.js";
