// Reads JSON of others into values that have exactly the members that are known, and nothing else.

/** Reads a value or throws `BadShape`. */
export type Reader<T> = (value: unknown, at: string) => T;
/** What a reader gives. */
export type Read<R> = R extends Reader<infer T> ? T : never;
/** A word of a list that may grow: one that this version does not know is kept as it is. */
export type Word<W extends string> = W | (string & {});

export class BadShape extends Error {
  override readonly name = "BadShape";
}

const fail = (at: string, wanted: string): never => {
  throw new BadShape(`${at} is not ${wanted}`);
};

export const text: Reader<string> = (value, at) => (typeof value === "string" ? value : fail(at, "a text"));

export const word =
  <W extends string>(): Reader<Word<W>> =>
  (value, at) =>
    text(value, at);

export const whole: Reader<number> = (value, at) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : fail(at, "a whole number");

export const integer: Reader<number> = (value, at) =>
  Number.isSafeInteger(value) ? (value as number) : fail(at, "an integer");

export const number: Reader<number> = (value, at) => (typeof value === "number" ? value : fail(at, "a number"));

/** False when it is absent. */
export const flag: Reader<boolean> = (value, at) =>
  value === undefined ? false : typeof value === "boolean" ? value : fail(at, "true or false");

/** RFC 3339. */
export const time: Reader<string> = (value, at) =>
  typeof value === "string" && !Number.isNaN(Date.parse(value)) ? value : fail(at, "a time");

export const optional =
  <T>(read: Reader<T>): Reader<T | undefined> =>
  (value, at) =>
    value === undefined || value === null ? undefined : read(value, at);

export const nullable =
  <T>(read: Reader<T>): Reader<T | null> =>
  (value, at) =>
    value === undefined || value === null ? null : read(value, at);

export const list =
  <T>(read: Reader<T>): Reader<T[]> =>
  (value, at) =>
    Array.isArray(value) ? value.map((one, place) => read(one, `${at}/${place}`)) : fail(at, "a list");

/** Empty when it is absent. */
export const listOrNone =
  <T>(read: Reader<T>): Reader<T[]> =>
  (value, at) =>
    value === undefined ? [] : list(read)(value, at);

export const record =
  <T>(read: Reader<T>): Reader<Record<string, T>> =>
  (value, at) =>
    Object.fromEntries(Object.entries(object(value, at)).map(([name, one]) => [name, read(one, `${at}/${name}`)]));

export function object(value: unknown, at: string): Record<string, unknown> {
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : fail(at, "an object");
}

type Members = Record<string, Reader<unknown>>;
type Optional<M extends Members> = { [N in keyof M]: undefined extends Read<M[N]> ? N : never }[keyof M];
type Shaped<M extends Members> = { [N in Exclude<keyof M, Optional<M>>]: Read<M[N]> } & {
  [N in Optional<M>]?: Exclude<Read<M[N]>, undefined>;
};

/** An object with these members. Absent optional members stay absent. */
export const shape =
  <M extends Members>(members: M): Reader<{ [N in keyof Shaped<M>]: Shaped<M>[N] }> =>
  (value, at) => {
    const given = object(value, at);
    const made: Record<string, unknown> = {};
    for (const [name, read] of Object.entries(members)) {
      const own = Object.hasOwn(given, name) ? given[name] : undefined;
      const member = read(own, `${at}/${name}`);
      if (member !== undefined) made[name] = member;
    }
    return made as { [N in keyof Shaped<M>]: Shaped<M>[N] };
  };

/** Objects that say in `type` what they are. One that is not known becomes `{type: "newer"}`. */
export const tagged =
  <M extends Record<string, Reader<object>>>(
    kinds: M,
  ): Reader<{ [K in keyof M & string]: { type: K } & Read<M[K]> }[keyof M & string] | { type: "newer" }> =>
  (value, at) => {
    const { type } = object(value, at);
    const read = typeof type === "string" && Object.hasOwn(kinds, type) ? kinds[type] : undefined;
    if (typeof type !== "string") fail(`${at}/type`, "a text");
    return (read ? { type, ...read(value, at) } : { type: "newer" }) as never;
  };
