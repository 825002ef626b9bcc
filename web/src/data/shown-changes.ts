/** What was shown of the changes of tasks. An order to apply or to discard them names it. */
import { diffDigest, listDigest } from "@ensemble/client/seal";
import type { components } from "@ensemble/client";

type TaskChanges = components["schemas"]["TaskChanges"];

/** Whether all that was changed is in the diff, as far as the server says. */
export const hasWholeDiff = ({ unknown, diffTruncated }: TaskChanges): boolean => unknown !== true && !diffTruncated;

/** Whether all files that were changed are in the list. */
export const hasWholeList = ({ unknown, files, fileCount }: TaskChanges): boolean =>
  unknown !== true && files.length === fileCount;

/** It differs from the one that a person was shown. */
export class HasChanged extends Error {
  override name = "HasChanged";
}

export class ShownChanges {
  /** The digests of the list of files and of the diff, by the ids of the tasks. */
  readonly #shown = new Map<string, { list: string; diff: string }>();

  /** Remembers that the diff of a task was read. */
  async saw(task: string, changes: TaskChanges, diff: ArrayBuffer): Promise<void> {
    this.#shown.set(task, { list: await listDigest(changes), diff: await diffDigest(diff) });
  }

  /** The digest of what was shown: of the diff, where it was read, or of the list of files. What has changed since then has to be read again
   * first, unless it is wanted `unseen`. */
  async seen(task: string, changes: TaskChanges, unseen: boolean): Promise<string> {
    const list = await listDigest(changes);
    const shown = this.#shown.get(task);
    if (shown && shown.list !== list && !unseen) {
      throw new HasChanged("It has changed since you looked, so nothing was done. Look at it again.");
    }
    return shown?.list === list && hasWholeDiff(changes) ? shown.diff : list;
  }
}
