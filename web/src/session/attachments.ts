/** What is sent with the text of a prompt: pictures, and files of text. */
import { type Attachment, attachmentSize, MOST_ATTACHMENTS, MOST_BODY } from "@ensemble/client/transcript";
import { toPicture } from "./pictures.ts";

/** More would be a form to fill in, not a prompt. */
export const MOST_FILES = 8;
const SMALLEST_PICTURE = 16 << 10;
/** One picture leaves room for others, in bytes. */
const LARGEST_PICTURE = 220 << 10;

const encoder = new TextEncoder();
/** What a message has in addition to its prompt, in bytes: its head. */
const HEAD = 4 << 10;

const roomIn = (attachments: readonly Attachment[]): number =>
  MOST_ATTACHMENTS - attachments.reduce((sum, one) => sum + attachmentSize(one), 0);

/** Whether a prompt fits into one message. */
export function fits(text: string, attachments: readonly Attachment[]): boolean {
  return encoder.encode(JSON.stringify({ text, attachments })).length <= MOST_BODY - HEAD;
}

const kib = (size: number): string => `${Math.ceil(size / 1_024).toLocaleString()} KiB`;

/** Adds files. Rejects with what is wrong with the first one that cannot be added. */
export async function withFiles(before: readonly Attachment[], files: readonly File[]): Promise<Attachment[]> {
  let all = [...before];
  for (const file of files)
    all = file.type.startsWith("image/") ? await withPicture(all, file) : withText(all, file.name, await textIn(file));
  return all;
}

/** Adds a text as a file. Throws when there is no room for it. */
export function withText(before: readonly Attachment[], name: string, text: string): Attachment[] {
  const one: Attachment = {
    type: "resource",
    resource: { uri: `attachment:${encodeURI(name)}`, mimeType: "text/plain", text },
  };
  if (before.length >= MOST_FILES) throw new Error(`A prompt can have ${MOST_FILES} files.`);
  if (attachmentSize(one) > roomIn(before)) throw tooLong(name, attachmentSize(one));
  return [...before, one];
}

/** The name of a file of text, as it was added. */
export function nameOfFile(uri: string): string {
  try {
    return decodeURI(uri.replace(/^attachment:/, ""));
  } catch {
    return uri;
  }
}

async function withPicture(before: readonly Attachment[], file: File): Promise<Attachment[]> {
  if (before.length >= MOST_FILES) throw new Error(`A prompt can have ${MOST_FILES} files.`);
  // What is written in base64 takes a third more.
  const room = Math.min(LARGEST_PICTURE, Math.floor((roomIn(before) * 3) / 4) - 100);
  if (room < SMALLEST_PICTURE) throw new Error("There is no room for another picture in this prompt.");
  return [...before, { type: "image", ...(await toPicture(file, room)) }];
}

function tooLong(name: string, size: number): Error {
  return new Error(
    `Not added: ${name} has ${kib(size)}, and the files of a prompt have at most ${kib(MOST_ATTACHMENTS)} together. Put it on the machine, and name its path.`,
  );
}

async function textIn(file: File): Promise<string> {
  if (file.size > MOST_ATTACHMENTS) throw tooLong(file.name, file.size);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text;
  } catch {
    // The check below reports it.
  }
  throw new Error(`Not added: ${file.name} is neither a picture nor a text.`);
}
