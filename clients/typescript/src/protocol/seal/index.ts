// What is sealed and signed, in the formats of docs/ENCRYPTION.md, on Web Crypto. No I/O happens here.

export { ContentRing } from "./content-ring.js";
export { openDaemonState, type DaemonState } from "./daemon-state.js";
export { LinkCode, type DeviceLinkRequest, type LinkAnswer } from "./device-link.js";
export { BoxPair, hkdf, openWith, sealTo } from "../hpke.js";
export { InviteCode, type Admission, type ClaimInvite, type InviteAnswer } from "./invite.js";
export { LinkSecret, readShareAddress } from "./link.js";
export { RecoveryWords } from "./recovery.js";
export { epochOf, KeyRing, openContent, openJson, purposes, sealContent, sealJson, type Purpose } from "./ring.js";
export {
  openAgentState,
  openMetadata,
  partOf,
  sealAgentState,
  sealMetadata,
  type NewMetadata,
  type OfMachine,
  type SignedMetadata,
} from "./said.js";
export { Admin, SharedRing, type Grant, type ShareLevel } from "./share.js";
export { bindings, openClientState, openRing, sealClientState, sealRing, type SignedRing } from "./signed-ring.js";
export {
  diffDigest,
  isSignedTask,
  listDigest,
  newNonce,
  openTask,
  outputKeys,
  readTask,
  sealTask,
  signTask,
  type ChangesList,
  type ClearTask,
  type SessionTask,
  type Signed,
  type SignedAs,
} from "./task.js";
