/** Pictures for a prompt: made small enough to be sent, and without what a camera writes into them, such as the place. */
import { MOST_ATTACHMENTS } from "@ensemble/client/transcript";

export interface Picture {
  mimeType: string;
  /** Base64. */
  data: string;
}

export const MOST_PICTURES = 4;
/** Agents look at no more of a picture than this, in pixels. */
const LONGEST_EDGE = 1_568;
/** A file that is larger is not opened, in bytes. */
const LARGEST_FILE = 40 << 20;
/** One picture leaves room for others, in bytes. */
const LARGEST = 220 << 10;
const SMALLEST = 16 << 10;
const QUALITIES = [0.85, 0.7, 0.5, 0.35];

/** So many bytes of a prompt the pictures take. */
const sizeOf = (pictures: readonly Picture[]): number => pictures.reduce((sum, { mimeType, data }) => sum + mimeType.length + data.length, 0);

/** Adds the pictures among some files. Rejects with what is wrong with them. */
export async function withPictures(before: readonly Picture[], files: readonly File[]): Promise<Picture[]> {
  const all = [...before];
  for (const file of files) {
    if (all.length >= MOST_PICTURES) throw new Error(`A prompt can have ${MOST_PICTURES} pictures.`);
    // What is written in base64 takes a third more.
    const room = Math.min(LARGEST, Math.floor(((MOST_ATTACHMENTS - sizeOf(all)) * 3) / 4) - 100);
    if (room < SMALLEST) throw new Error("There is no room for another picture in this prompt.");
    all.push(await smaller(file, room));
  }
  return all;
}

async function smaller(file: File, room: number): Promise<Picture> {
  if (file.size > LARGEST_FILE) throw new Error(`${file.name} is too large: at most 40 MB.`);
  const image = await createImageBitmap(file).catch(() => undefined);
  if (!image) throw new Error(`${file.name || "The file"} is no picture that this browser can read.`);
  try {
    for (let edge = LONGEST_EDGE; edge >= 200; edge = Math.floor(edge * 0.7)) {
      const scale = Math.min(1, edge / Math.max(image.width, image.height));
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [Math.max(1, Math.round(image.width * scale)), Math.max(1, Math.round(image.height * scale))];
      canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
      // Letters stay sharp in PNG, where they fit.
      for (const [type, quality] of [["image/png", 1] as const, ...QUALITIES.map((one) => ["image/jpeg", one] as const)]) {
        const blob = await new Promise<Blob | null>((made) => canvas.toBlob(made, type, quality));
        if (blob && blob.type === type && blob.size <= room) return { mimeType: type, data: await base64(blob) };
      }
    }
  } finally {
    image.close();
  }
  throw new Error(`${file.name} cannot be made small enough.`);
}

function base64(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error("The picture cannot be read."));
    reader.readAsDataURL(blob);
  });
}

/** The pictures among what was pasted or dropped. */
export function picturesIn(data: DataTransfer | null): File[] {
  return [...(data?.files ?? [])].filter(({ type }) => type.startsWith("image/"));
}
