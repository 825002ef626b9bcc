// An account on this device: its keys, lists, people, sessions and machines.

export { Account, join, recover, type Recovering, type StoredAccount } from "./account.js";
export type { AccountOptions, Context } from "./context.js";
export { Devices, type Device, type NewWords } from "./devices/index.js";
export type { Removed } from "./devices/remove.js";
export type { Joining, JoinOptions } from "./devices/join.js";
export { Asking, Linking } from "./devices/link.js";
export { DeviceKeys, unfinishedLinking } from "./keys.js";
export type { MachineReceipt } from "./live/access.js";
export { Conversation, type Said } from "./live/conversation.js";
export { LiveSession } from "./live/index.js";
export type { Sent } from "./live/sender.js";
export type { Machine } from "./machines/find.js";
export { Machines, type RunnerState } from "./machines/index.js";
export type { DaemonState } from "../protocol/seal/daemon-state.js";
export type { MachineMetadata } from "./machines/keys.js";
export type { Unconfirmed } from "./machines/seen.js";
export type { Notice, Notices } from "./notice.js";
export type { Own } from "./own.js";
export { People } from "./people.js";
export { NO_HOST, PublicSession, type PublicOptions } from "./public-view.js";
export type { SessionFilter } from "./sessions/find.js";
export { Sessions } from "./sessions/index.js";
export type { Session } from "./sessions/known.js";
export type { Share } from "./sessions/share.js";
export type { Start, Starting } from "./sessions/start.js";
export type { Metadata } from "./sessions/titles.js";
export {
  doubt,
  drawOnce,
  Draws,
  NOT_CHECKED,
  NOT_SIGNED,
  sealTurn,
  signOrder,
  signRun,
  takeSigned,
  withIds,
  type CheckedTasks,
  type Once,
  type Turn,
  type Wanted,
} from "./tasks.js";
export { outputKeys } from "../protocol/seal/task.js";
export { MemoryStore, type Store } from "../store/store.js";
