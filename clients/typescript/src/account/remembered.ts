// What was found out once and is asked again and again.

/** What is known under the name, or is found out now. What could not be is asked again, and of more than `most` the oldest is forgotten. */
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
