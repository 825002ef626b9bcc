// Device lists, and the keys in them (docs/ENCRYPTION.md). No I/O happens here.

export { isSigned, isSigningKey, SigningKey, type Signer } from "../ed25519.js";
export { isBoxKey } from "../hpke.js";
export {
  accountDigest,
  fingerprint,
  List,
  MOST_DEVICES,
  opensContents,
  proofText,
  seenText,
  sharesSessions,
  signList,
  signsLists,
  type DeviceList,
  type ListedDevice,
  type Removal,
  type Role,
  type SeenList,
  type SignedList,
} from "./list.js";
export {
  commitment,
  foldedName,
  isMachineName,
  isName,
  Names,
  nearestMachineName,
  nearestName,
  type DeviceName,
  type NamesByKey,
} from "./name.js";
