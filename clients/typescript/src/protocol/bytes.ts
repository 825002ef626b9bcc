// Bytes and their texts: base64url without padding (RFC 4648, section 5), UTF-8, big-endian numbers.

/** Bytes that Web Crypto takes. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** What newer engines can do by themselves (TC39, "Uint8Array to/from base64"). It is about thirty times as fast. */
interface Native {
  fromBase64?(text: string, options: { alphabet: "base64url" }): Bytes;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const utf8 = (text: string): Bytes => encoder.encode(text);

/** The text of UTF-8 bytes. Throws when they are none. */
export const fromUtf8 = (bytes: Uint8Array): string => decoder.decode(bytes);

/** How many bytes a text has in UTF-8. */
export const utf8Length = (text: string): number => encoder.encode(text).length;

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Four bytes, big-endian. */
export function u32(number: number): Bytes {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, number);
  return bytes;
}

export const readU32 = (bytes: Uint8Array, at: number): number =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at);

export const random = (length: number): Bytes => crypto.getRandomValues(new Uint8Array(length));

export function equal(one: Uint8Array, other: Uint8Array): boolean {
  if (one.length !== other.length) return false;
  let difference = 0;
  for (let at = 0; at < one.length; at++) difference |= (one[at] ?? 0) ^ (other[at] ?? 0);
  return difference === 0;
}

/** Base64url without padding. */
export function encode(bytes: Uint8Array): string {
  let text = "";
  // In pieces: the number of a function's arguments is limited.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Reads base64url or base64, with or without padding. Undefined when the text is neither. */
export function decode(text: string): Bytes | undefined {
  const body = text.replace(/={1,2}$/, "");
  const url = /[+/]/.test(body) && !/[-_]/.test(body) ? body.replaceAll("+", "-").replaceAll("/", "_") : body;
  if (!/^[A-Za-z0-9_-]*$/.test(url)) return undefined;
  try {
    const native = Uint8Array as Native;
    if (native.fromBase64) return native.fromBase64(url, { alphabet: "base64url" });
    const binary = atob(url.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
    return bytes;
  } catch {
    return undefined;
  }
}

/** Exactly `length` bytes in their one canonical text, so that texts can be compared. */
export function decodeExact(text: unknown, length: number): Bytes | undefined {
  if (typeof text !== "string") return undefined;
  const bytes = decode(text);
  return bytes?.length === length && encode(bytes) === text ? bytes : undefined;
}

/** The sixteen bytes of a UUID. */
export function uuidBytes(id: string): Bytes | undefined {
  const digits = id.replaceAll("-", "");
  if (!/^[0-9a-f]{32}$/i.test(digits)) return undefined;
  return Uint8Array.from({ length: 16 }, (_, at) => Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

export function uuidText(bytes: Uint8Array): string {
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join("-");
}

/** A new UUID of version 7 (RFC 9562, section 5.7): ids of sessions begin with their time. */
export function uuidV7(now: number = Date.now()): string {
  const bytes = random(16);
  new DataView(bytes.buffer).setUint16(0, Math.floor(now / 2 ** 32));
  bytes.set(u32(now % 2 ** 32), 2);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  return uuidText(bytes);
}

export const sha256 = async (bytes: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** SHA-256 of a text, base64url. */
export const digestText = async (text: string): Promise<string> => encode(await sha256(utf8(text)));
