/** What is done to a whole session: renamed, archived, stopped, deleted. */
import { mine } from "./account.ts";
import { forget, LINKS } from "./kept.ts";
import type { SessionRow } from "./row.ts";
import { putRow, readAgain } from "./sessions.ts";

export async function rename(row: SessionRow, title: string): Promise<void> {
  await mine().sessions.describe(row.id, (metadata) => ({ ...metadata, title }));
  await readAgain(row.id);
}

/** Its owner has seen that it has finished or failed: it is no longer listed as open, and no device is notified. What is newer stays. */
export async function markSeen(id: string): Promise<void> {
  const client = mine();
  await client.sessions.seen(await client.sessions.read(id));
  await readAgain(id);
}

/** Takes it from the lists, or puts it back. */
export async function archive(row: SessionRow, archived: boolean): Promise<void> {
  putRow({ ...row, archived });
  try {
    await mine().sessions.change(row.id, { archived });
  } finally {
    await readAgain(row.id);
  }
}

/** Deletes it for all users. */
export async function remove(id: string): Promise<void> {
  // One that stays is ended by the device that would answer it.
  await import("./inviting.ts").then(({ endInvitesInto }) => endInvitesInto(id)).catch(() => undefined);
  await mine().sessions.remove(id);
  await forget(`${LINKS}${id}`);
  await readAgain(id);
}

/** Ends the agent. */
export async function stopAgent(id: string): Promise<void> {
  const live = await mine().sessions.open(id);
  await live.control({ action: "stop" });
}
