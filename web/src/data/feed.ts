/** One session as its page follows it. */
import type { Store } from "../base/store.ts";
import type { Answers, Card, Item, PlanEntry, State } from "../session/types.ts";
import type { Attachment } from "@ensemble/client/transcript";
import type { Looks } from "./looks.ts";
import type { SessionRow } from "./row.ts";

export interface FeedView {
  row: SessionRow | undefined;
  state: State | undefined;
  items: readonly Item[];
  /** Open requests, oldest first. */
  open: readonly Card[];
  plan: readonly PlanEntry[];
  /** Texts that are being written, and the turn that they belong to. */
  growing: readonly { part: number; text: string; isThought: boolean }[];
  turnId: string | undefined;
  hasOlder: boolean;
  /** The end of the transcript was read. */
  isOpen: boolean;
  /** It is shown as it was kept at this time: the server has not been reached since. */
  keptAt?: string | undefined;
  error: string | undefined;
  /** It was open, and the server now says that this person cannot have it. */
  isGone?: boolean | undefined;
  /** Messages came that are sealed with a newer key than the public link has. They are not among the items. */
  hasLater?: boolean | undefined;
  /** What comes after the items is sealed with a key that this device has not been given yet. */
  lacksKey?: boolean | undefined;
  /** The list of the owner that the machine has named and the server does not give. */
  withheld?: number | undefined;
  /** A machine hosts it. */
  isHosted: boolean;
  may: May;
  /** The newest answer of this device that the machine did not take. */
  rejected: { requestId: string; text: string } | undefined;
}

/** What this person may do. */
export interface May {
  prompt: boolean;
  approve: boolean;
  own: boolean;
}

export interface SessionFeed {
  readonly id: string;
  readonly view: Store<FeedView>;
  /** The same id again is never a second prompt. */
  prompt(text: string, when: "now" | "next", localId: string, attachments?: Attachment[]): Promise<void>;
  /** Neither an option nor answers: the person does not answer. */
  answer(card: Card, answer: { optionId?: string; answers?: Answers | undefined }): Promise<void>;
  interrupt(): Promise<void>;
  /** Asks the machine to drop a prompt that waits. What it says is in the view. Absent: this reader may not. */
  takeBack?(prompt: { localId: string; key: string }, localId: string): Promise<void>;
  /** Restarts an agent that has ended. */
  resume(): Promise<void>;
  setMode(mode: string): Promise<void>;
  setModel(model: string): Promise<void>;
  loadOlder(): Promise<void>;
  /** What its machine shows of its directory. Absent: this reader may not ask. */
  looks?(): Promise<Looks>;
}

/** Before anything is known. */
export const NOTHING: FeedView = {
  row: undefined,
  state: undefined,
  items: [],
  open: [],
  plan: [],
  growing: [],
  turnId: undefined,
  hasOlder: false,
  isOpen: false,
  error: undefined,
  isHosted: true,
  may: { prompt: false, approve: false, own: false },
  rejected: undefined,
};
