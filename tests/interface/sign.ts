// A key that signs in.
import { generateKeyPairSync, sign } from "node:crypto";

export function signer(server: string): { publicKey: string; signed: (challenge: string) => string } {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const own = publicKey.export({ format: "jwk" }).x ?? "";
  const text = (challenge: string) => Buffer.from(`ensemble-auth-v1\n${server}\n${own}\n${challenge}`);
  return { publicKey: own, signed: (challenge) => sign(null, text(challenge), privateKey).toString("base64url") };
}
