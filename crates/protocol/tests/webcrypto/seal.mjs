// docs/ENCRYPTION.md implemented with WebCrypto only, as in a browser. It has no dependencies, so that it can be copied.

const { subtle } = globalThis.crypto;
const utf8 = new TextEncoder();

export const bytes = (...parts) => {
  const arrays = parts.map((part) => (typeof part === "string" ? utf8.encode(part) : Uint8Array.from(part)));
  const out = new Uint8Array(arrays.reduce((length, array) => length + array.length, 0));
  let at = 0;
  for (const array of arrays) {
    out.set(array, at);
    at += array.length;
  }
  return out;
};
export const toText = (array) =>
  btoa(String.fromCharCode(...array)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
export const fromText = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
export const u32 = (number) => [number >>> 24, (number >>> 16) & 255, (number >>> 8) & 255, number & 255];
export const random = (length) => crypto.getRandomValues(new Uint8Array(length));

// ---- AES-256-GCM ----

export async function gcm(direction, key, nonce, aad, data) {
  const imported = await subtle.importKey("raw", key, "AES-GCM", false, [direction]);
  const parameters = { name: "AES-GCM", iv: nonce, additionalData: utf8.encode(aad) };
  return new Uint8Array(await subtle[direction](parameters, imported, data));
}

function versioned(blob) {
  const all = fromText(blob);
  if (all[0] !== 1) throw new Error("unknown format");
  return all.subarray(1);
}

// ---- Account and content keys ----

const PKCS8 = { Ed25519: 0x70, X25519: 0x6e };

/// Wraps a raw 32-byte secret in the only format that WebCrypto accepts for private keys (RFC 8410, section 7).
function pkcs8(name, secret) {
  return bytes([0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, PKCS8[name], 4, 0x22, 4, 0x20], secret);
}

async function keyPair(name, secret, usages) {
  const key = await subtle.importKey("pkcs8", pkcs8(name, secret), name, true, usages);
  return { key, public: fromText((await subtle.exportKey("jwk", key)).x) };
}

export const accountKey = (seed) => keyPair("Ed25519", seed, ["sign"]);

export async function hkdf(ikm, info) {
  const imported = await subtle.importKey("raw", ikm, "HKDF", false, ["deriveBits"]);
  const parameters = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info: utf8.encode(info) };
  return new Uint8Array(await subtle.deriveBits(parameters, imported, 256));
}

export const boxKey = (secret) => keyPair("X25519", secret, ["deriveBits"]);
export const contentKey = async (seed) => boxKey(await hkdf(seed, "ensemble-content-key-v1"));
export const deviceBox = async (seed) => boxKey(await hkdf(seed, "ensemble-device-box-v1"));

export async function sign(account, text) {
  return toText(new Uint8Array(await subtle.sign("Ed25519", account.key, utf8.encode(text))));
}

export async function verify(publicKey, signature, text) {
  const key = await subtle.importKey("raw", fromText(publicKey), "Ed25519", false, ["verify"]);
  return subtle.verify("Ed25519", key, fromText(signature), utf8.encode(text));
}

export async function fingerprint(publicKey) {
  const digest = new Uint8Array(await subtle.digest("SHA-256", fromText(publicKey)));
  const hex = Array.from(digest.subarray(0, 10), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.match(/.{4}/g).join("-");
}

// ---- HPKE, RFC 9180, base mode ----

const KEM = bytes("KEM", [0x00, 0x20]);
const SUITE = bytes("HPKE", [0x00, 0x20, 0x00, 0x01, 0x00, 0x02]);

export async function hmac(key, data) {
  // WebCrypto accepts no empty key. HMAC pads keys with zeros, so one zero byte is the same key.
  const raw = key.length === 0 ? new Uint8Array(1) : key;
  const imported = await subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", imported, data));
}

const extract = (suite, salt, label, ikm) => hmac(salt, bytes("HPKE-v1", suite, label, ikm));

/// LabeledExpand for at most 32 bytes: one round of HKDF-Expand.
async function expand(suite, prk, label, info, length) {
  const labeled = bytes([0, length], "HPKE-v1", suite, label, info, [1]);
  return (await hmac(prk, labeled)).subarray(0, length);
}

async function agree(privateKey, publicKey) {
  const imported = await subtle.importKey("raw", publicKey, "X25519", false, []);
  return new Uint8Array(await subtle.deriveBits({ name: "X25519", public: imported }, privateKey, 256));
}

async function schedule(shared, info) {
  const context = bytes(
    [0],
    await extract(SUITE, [], "psk_id_hash", []),
    await extract(SUITE, [], "info_hash", utf8.encode(info)),
  );
  const secret = await extract(SUITE, shared, "secret", []);
  return {
    key: await expand(SUITE, secret, "key", context, 32),
    nonce: await expand(SUITE, secret, "base_nonce", context, 12),
  };
}

async function sharedSecret(dh, enc, recipient) {
  return expand(KEM, await extract(KEM, [], "eae_prk", dh), "shared_secret", bytes(enc, recipient), 32);
}

const KEYS = "ensemble-key-v1";

export async function sealRing(ring, recipientPublic, aad, info = KEYS) {
  return toText(bytes([1], await sealRaw(ring, recipientPublic, aad, info)));
}

export const openRing = (blob, recipient, aad, info = KEYS) => openRaw(versioned(blob), recipient, aad, info);

async function sealRaw(plaintext, recipientPublic, aad, info = KEYS) {
  const ephemeral = await subtle.generateKey("X25519", true, ["deriveBits"]);
  const enc = new Uint8Array(await subtle.exportKey("raw", ephemeral.publicKey));
  const dh = await agree(ephemeral.privateKey, recipientPublic);
  const { key, nonce } = await schedule(await sharedSecret(dh, enc, recipientPublic), info);
  return bytes(enc, await gcm("encrypt", key, nonce, aad, plaintext));
}

async function openRaw(sealed, recipient, aad, info = KEYS) {
  const enc = sealed.slice(0, 32);
  const dh = await agree(recipient.key, enc);
  const { key, nonce } = await schedule(await sharedSecret(dh, enc, recipient.public), info);
  return gcm("decrypt", key, nonce, aad, sealed.slice(32));
}

const sha256 = async (array) => new Uint8Array(await subtle.digest("SHA-256", array));

// ---- Rings, links, contents ----

const ringText = async (sealed, aad) => `ensemble-ring-v2\n${aad}\n${toText(await sha256(sealed))}`;

export async function sealSignedRing(ring, signer, recipientPublic, aad) {
  const sealed = await sealRaw(ring, recipientPublic, aad);
  const signature = fromText(await sign(signer, await ringText(sealed, aad)));
  return toText(bytes([2], signer.public, signature, sealed));
}

export async function openSignedRing(blob, recipient, aad) {
  const all = fromText(blob);
  if (all[0] !== 2) throw new Error("unknown format");
  const [signer, signature, sealed] = [all.slice(1, 33), all.slice(33, 97), all.slice(97)];
  const good = await verify(toText(signer), toText(signature), await ringText(sealed, aad));
  if (!good) throw new Error("the ring is not signed by who made it");
  return { ring: await openRaw(sealed, recipient, aad), signer: toText(signer) };
}

const LEVELS = ["view", "edit", "admin"];
const GRANT = 109;

const uuid = (array) =>
  Array.from(array, (byte) => byte.toString(16).padStart(2, "0")).join("")
    .replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
const uuidBytes = (text) => Uint8Array.from(text.replaceAll("-", "").match(/../g), (pair) => parseInt(pair, 16));

function grantText(session, user, account, { level, form, epoch, contentEpoch, recipientEpoch }, digest) {
  const about = [session, user, account, level, form, epoch, contentEpoch, recipientEpoch];
  return ["ensemble-share-v2", ...about, toText(digest)].join("\n");
}

function readGrant(array, form) {
  const level = LEVELS[array[0]];
  if (!level) throw new Error("unknown level");
  const view = new DataView(array.buffer, array.byteOffset);
  const [epoch, contentEpoch, recipientEpoch] = [view.getUint32(1), view.getUint32(5), view.getUint32(9)];
  return { level, form, epoch, contentEpoch, recipientEpoch, signer: array.slice(13, 45), signature: array.slice(45, GRANT) };
}

const isGranted = (grant, session, user, account, digest) =>
  verify(toText(grant.signer), toText(grant.signature), grantText(session, user, account, grant, digest));

const shareAad = (session, user, machine) => `ensemble-share-key-v2\n${session}\n${user}\n${machine ?? ""}`;

/// A ring that was shared with a user: who granted it as what, and the ring.
export async function openShare(blob, recipient, session, user, account, machine) {
  const all = fromText(blob);
  if (all[0] !== 3) throw new Error("unknown format");
  const by = 1 + GRANT;
  const grant = readGrant(all.subarray(1, by), all[by] === 1 ? "admin" : "owner");
  let [at, admin] = [by + 1, null];
  if (all[by] === 1) {
    const [id, key, digest] = [all.subarray(at, at + 16), all.slice(at + 16, at + 48), all.slice(at + 48, at + 80)];
    admin = { user: uuid(id), account: toText(key), digest };
    admin.grant = readGrant(all.subarray(at + 80, at + 80 + GRANT), "owner");
    if (admin.grant.level !== "admin") throw new Error("no admin");
    if (!(await isGranted(admin.grant, session, admin.user, admin.account, admin.digest))) throw new Error("no admin");
    at += 80 + GRANT;
  } else if (all[by] !== 0) throw new Error("unknown form");
  const sealed = all.slice(at);
  if (!(await isGranted(grant, session, user, account, await sha256(sealed)))) throw new Error("not granted");
  const ring = await openRaw(sealed, recipient, shareAad(session, user, machine));
  const { level, epoch, contentEpoch, recipientEpoch } = grant;
  return { ring, signer: toText(grant.signer), level, epoch, contentEpoch, recipientEpoch, admin: admin && admin.user };
}

/// The same made again; `own` is the share of the admin who shares.
export async function sealShare(ring, signer, recipientPublic, grant, own) {
  const { session, user, account, machine, level, epoch, contentEpoch, recipientEpoch } = grant;
  const sealed = await sealRaw(ring, recipientPublic, shareAad(session, user, machine));
  const text = grantText(session, user, account, { ...grant, form: own ? "admin" : "owner" }, await sha256(sealed));
  const epochs = [epoch, contentEpoch, recipientEpoch].flatMap(u32);
  const signed = bytes([LEVELS.indexOf(level)], epochs, signer.public, fromText(await sign(signer, text)));
  if (!own) return toText(bytes([3], signed, [0], sealed));
  const mine = fromText(own);
  const digest = await sha256(mine.slice(2 + GRANT));
  return toText(bytes([3], signed, [1], uuidBytes(user), fromText(account), digest, mine.slice(1, 1 + GRANT), sealed));
}

export function ringKey(ring, epoch) {
  const first = new DataView(ring.buffer, ring.byteOffset).getUint32(1);
  const at = 9 + 32 * (epoch - first);
  if (ring[0] !== 2 || epoch < first || at + 32 > ring.length) throw new Error(`no key for epoch ${epoch}`);
  return ring.subarray(at, at + 32);
}

export const linkSecret = (fragment) => {
  if (!fragment.startsWith("v1.")) throw new Error("unknown fragment");
  return fromText(fragment.slice(3));
};

export async function sealLink(ring, secret, aad) {
  const nonce = random(12);
  return toText(bytes([1], nonce, await gcm("encrypt", secret, nonce, aad, ring)));
}

export async function openLink(blob, secret, aad) {
  const rest = versioned(blob);
  return gcm("decrypt", secret, rest.subarray(0, 12), aad, rest.subarray(12));
}

export async function sealContent(ring, epoch, aad, plaintext) {
  const nonce = random(12);
  const sealed = await gcm("encrypt", ringKey(ring, epoch), nonce, aad, utf8.encode(plaintext));
  return toText(bytes([1], u32(epoch), nonce, sealed));
}

export async function openContent(ring, aad, blob) {
  const rest = versioned(blob);
  const epoch = new DataView(rest.buffer, rest.byteOffset).getUint32(0);
  const opened = await gcm("decrypt", ringKey(ring, epoch), rest.subarray(4, 16), aad, rest.subarray(16));
  return { epoch, plaintext: new TextDecoder("utf-8", { fatal: true }).decode(opened) };
}
