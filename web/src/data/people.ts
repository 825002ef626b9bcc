/** Names of people. This account is "You"; another user has the name that this account gives, or what the server says. */
import { Store } from "../base/store.ts";
import { account, mine } from "./account.ts";

const known = new Map<string, string>();
const asked = new Set<string>();
/** Rises when a name has come. */
export const names = new Store(0);

export function nameOf(user: string): string {
  const me = account.get();
  if (me.state === "ready" && me.userId === user) return "You";
  if (!asked.has(user) && me.state === "ready") {
    asked.add(user);
    const { people } = mine();
    people
      .called(user)
      .catch(() => undefined)
      .then((called) => called ?? people.name(user))
      .then(
        (name) => {
          if (name === undefined) return;
          known.set(user, name);
          names.update((count) => count + 1);
        },
        () => asked.delete(user),
      );
  }
  return known.get(user) ?? (user === "" ? "Someone" : `User ${user.slice(-6)}`);
}
