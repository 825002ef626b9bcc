// Calls, streams and errors. `./seal`, `./transcript` and `./indexeddb` have the rest.

export { Client, newId, type CallWatch, type ClientOptions } from "./client.js";
export { BearerCredential, DeviceCredential, type Credential, type Signer, type Token } from "./credential.js";
export * from "./errors.js";
export { refOf } from "./refs.js";
export { pause, sleep } from "./retry.js";
export * from "./streams.js";
export { uuidV7 } from "./bytes.js";
export type { components, operations, paths } from "./openapi.js";
