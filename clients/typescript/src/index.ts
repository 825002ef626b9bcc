// Calls, streams and errors. The other entries of the package have the rest.

export type { Caller, Input, Method, Output, PathOf } from "./call.js";
export { Client, newId, type CallWatch, type ClientOptions } from "./client.js";
export { BearerCredential, DeviceCredential, type Credential, type Token } from "./credential.js";
export * from "./errors.js";
export { refOf } from "./refs.js";
export { pause, sleep } from "./retry.js";
export * from "./streams.js";
export { uuidV7 } from "./protocol/bytes.js";
export type { Signer } from "./protocol/ed25519.js";
export type { components, operations, paths } from "./openapi.js";
