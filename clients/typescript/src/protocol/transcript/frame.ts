// Live frames, and the texts that are still being written. Frames are not signed and not stored, and may be lost, late or repeated.

import { fromUtf8, utf8, utf8Length, type Bytes } from "../bytes.js";
import { MOST_ID } from "./body.js";
import { flag, optional, shape, text, whole, type Read } from "./shape.js";

const MOST_FRAME_TEXT = 10 * 1_024;
/** The parts that may grow at once. */
const MOST_PARTS = 16;
/** What is kept of a part that grows, in bytes. */
const MOST_LIVE = 64 * 1_024;
/** The completed parts that are remembered, so that a late frame does not bring one back. */
const MOST_DONE = 1_024;
const GAP = "…";

const frame = shape({ turnId: text, part: whole, offset: whole, text, thought: optional(flag) });
/** The newest end of one part of a turn. `offset` counts the bytes of the part before the text. */
export type Frame = Read<typeof frame>;

/** Reads a frame that was opened. Anything that is not one, or is too long, is nothing. */
export function readFrame(opened: Bytes): Frame | undefined {
  try {
    const read = frame(JSON.parse(fromUtf8(opened)), "");
    return utf8Length(read.text) <= MOST_FRAME_TEXT && utf8Length(read.turnId) <= MOST_ID ? read : undefined;
  } catch {
    return undefined;
  }
}

/** A text that is still being written. */
export interface Growing {
  /** Its newest end. Where something is missing it has "…". */
  readonly text: string;
  /** The bytes of the part that are known, those that are not shown included. */
  readonly until: number;
  /** It is a thought of the agent. */
  readonly isThought: boolean;
}

/** The growing texts of the turn that runs. */
export class Live {
  #turn: string | undefined;
  #parts = new Map<number, Growing>();
  #done = new Set<number>();
  #doneBelow = 0;

  /** A turn begins. */
  begin(turn: string): void {
    this.finish();
    this.#turn = turn;
  }

  /** The turn has ended. No frame shows anything until the next one begins. */
  finish(): void {
    this.#turn = undefined;
    this.#parts = new Map();
    this.#done = new Set();
    this.#doneBelow = 0;
  }

  /** The message with the whole text has come. */
  complete(turn: string, part: number): void {
    if (this.#turn !== turn) return;
    this.#parts.delete(part);
    this.#done.add(part);
    if (this.#done.size > MOST_DONE) {
      const lowest = Math.min(...this.#done);
      this.#done.delete(lowest);
      this.#doneBelow = Math.max(this.#doneBelow, lowest + 1);
    }
  }

  /** Takes a frame. True: what is shown has changed. */
  take(frame: Frame): boolean {
    const known = this.#parts.get(frame.part);
    const isOver = frame.part < this.#doneBelow || this.#done.has(frame.part);
    if (isOver || this.#turn !== frame.turnId || (!known && this.#parts.size >= MOST_PARTS)) return false;
    const bytes = utf8(frame.text);
    if (bytes.length > MOST_FRAME_TEXT) return false;
    const next = grown(known ?? { text: "", until: 0, isThought: frame.thought === true }, frame.offset, bytes, frame.text);
    if (!next) return false;
    this.#parts.set(frame.part, next);
    return true;
  }

  /** By their part, in order. */
  parts(): [number, Growing][] {
    return [...this.#parts].sort(([one], [other]) => one - other);
  }
}

function grown(known: Growing, offset: number, bytes: Bytes, whole: string): Growing | undefined {
  const until = offset + bytes.length;
  if (until <= known.until) return undefined;
  const from = known.until - offset;
  // Only whole characters are appended: a byte that continues one has the highest bits 10.
  const fits = from >= 0 && ((bytes[from] ?? 0) & 0xc0) !== 0x80;
  const text = known.text + (fits ? fromUtf8(bytes.subarray(from)) : GAP + whole);
  return { text: utf8Length(text) > MOST_LIVE ? GAP + end(text, MOST_LIVE / 2) : text, until, isThought: known.isThought };
}

/** The end of a text, at most `most` bytes and only whole characters. */
function end(text: string, most: number): string {
  const bytes = utf8(text);
  let start = Math.max(0, bytes.length - most);
  while (start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return fromUtf8(bytes.subarray(start));
}
