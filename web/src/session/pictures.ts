/** Pictures for a prompt: made small enough to be sent, and without what a camera writes into them, such as the place. */
export interface Picture {
  mimeType: string;
  /** Base64. */
  data: string;
}

/** Agents look at no more of a picture than this, in pixels. */
const LONGEST_EDGE = 1_568;
/** A file that is larger is not opened, in bytes. */
const LARGEST_FILE = 40 << 20;
const QUALITIES = [0.85, 0.7, 0.5, 0.35];

/** A picture of at most `room` bytes. Rejects with what is wrong with the file. */
export async function toPicture(file: File, room: number): Promise<Picture> {
  if (file.size > LARGEST_FILE) throw new Error(`${file.name} is too large: at most 40 MB.`);
  const image = await createImageBitmap(file).catch(() => undefined);
  if (!image) throw new Error(`${file.name || "The file"} is not a picture that this browser can read.`);
  try {
    for (let edge = LONGEST_EDGE; edge >= 200; edge = Math.floor(edge * 0.7)) {
      const scale = Math.min(1, edge / Math.max(image.width, image.height));
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [
        Math.max(1, Math.round(image.width * scale)),
        Math.max(1, Math.round(image.height * scale)),
      ];
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
