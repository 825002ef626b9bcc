// An account on this device: its keys, lists, people, sessions and machines.

export { Account, type AccountOptions, type Own, type StoredAccount } from "./account.js";
export { Conversation, type Said } from "./conversation.js";
export { Devices, type Device, type NewWords } from "./devices.js";
export type { Share } from "./grants.js";
export { DeviceKeys } from "./keys.js";
export { Asking, join, Linking, unfinishedLinking, type Joining, type JoinOptions } from "./linking.js";
export { LiveSession, type Sent } from "./live.js";
export type { Told } from "./machine-access.js";
export { Machines, type Machine, type MachineMetadata, type RunnerState, type Unconfirmed } from "./machines.js";
export { People } from "./people.js";
export { NO_HOST, PublicSession, type PublicOptions } from "./public-view.js";
export { recover, type Recovering } from "./recovering.js";
export { sealTurn, signOrder, signRun, withIds, type Turn, type Wanted } from "./runs.js";
export { Sessions, type Metadata, type SessionFilter } from "./sessions.js";
export { doubt, NOT_CHECKED, NOT_SIGNED, takeSigned, type CheckedTasks } from "./signed-runs.js";
export { Draws, type Start, type Starting } from "./start.js";
export type { Session } from "./vault.js";
export { MemoryStore, type Store } from "../store/store.js";
