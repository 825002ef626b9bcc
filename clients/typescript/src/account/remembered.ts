// A cache for what is asked again and again.

/** The value under the name, which is looked up if it is not known. A failure is not kept; beyond `most` values the oldest is dropped. */
export function remembered<T>(all: Map<string, Promise<T>>, name: string, most: number, find: () => Promise<T>): Promise<T> {
  let one = all.get(name);
  if (!one) {
    one = find();
    all.set(name, one);
    one.catch(() => all.delete(name));
    const oldest = all.size > most ? all.keys().next().value : undefined;
    if (oldest !== undefined) all.delete(oldest);
  }
  return one;
}
