// The caller's token, and where a new one comes from.

import type { Caller } from "./call.js";
import { isProblem, Problem } from "./errors.js";
import { encode, fromUtf8, decode, utf8 } from "./protocol/bytes.js";
import type { Signer } from "./protocol/ed25519.js";
import { again, pause, sleep } from "./retry.js";
import type { components } from "./openapi.js";

/** Where bearer tokens come from. */
export interface Credential {
  /** A token that is not about to expire. Undefined: the call goes out without one. */
  bearer(client: Caller): Promise<string | undefined>;
  /** The server has refused this token. True: `bearer` gives another one. */
  forget(token: string): boolean;
}

/** A token of a device, and when it has to be renewed. */
export interface Token {
  readonly token: string;
  readonly userId: string;
  readonly expiresAt: string;
}

/** A token from elsewhere, which is not renewed. */
export class BearerCredential implements Credential {
  constructor(private readonly token: string) {}

  bearer(): Promise<string> {
    return Promise.resolve(this.token);
  }

  forget(): boolean {
    return false;
  }
}

/** A token says when it was made in whole seconds, and comes a moment later: a smaller difference is none. */
const EXACT_MS = 5_000;
const MOST_MS = 24 * 3_600_000;

/** Signs in with a device's key when a token is needed, once for all calls that wait. */
export class DeviceCredential implements Credential {
  #create: boolean;
  #token: (Token & { renewAt: number }) | undefined;
  #signingIn: Promise<Token & { renewAt: number }> | undefined;
  #clockAhead: number | undefined;

  /** @param create Whether to make an account for a key that has none. Only when a person has asked for a new account.
   * @param invite What lets it make one where that needs an invitation. */
  constructor(
    private readonly signer: Signer,
    create = false,
    private readonly invite?: components["schemas"]["Admission"],
  ) {
    this.#create = create;
  }

  /** By how many milliseconds the clock here was ahead of the server's at the newest sign-in. Undefined: there was none. */
  get clockAhead(): number | undefined {
    return this.#clockAhead;
  }

  /** The time by the server's clock, as `Date.now()` gives it. What is signed carries it, so that a wrong clock here does not matter. A
   * server that names another day is not followed: what is signed for a later day could be kept until then. */
  now(): number {
    const ahead = Math.abs(this.#clockAhead ?? 0);
    return Date.now() - (ahead > EXACT_MS && ahead <= MOST_MS ? (this.#clockAhead ?? 0) : 0);
  }

  /** The earlier and the later one of the clocks of this device and the server, in milliseconds. A later time of the server is followed for a
   * day, as by `now`. */
  clocks(): readonly [earlier: number, later: number] {
    const here = Date.now();
    const ahead = this.#clockAhead ?? 0;
    const there = Math.abs(ahead) > EXACT_MS ? here - ahead : here;
    return [Math.min(here, there), ahead < -MOST_MS ? here : Math.max(here, there)];
  }

  async bearer(client: Caller): Promise<string> {
    return (await this.signIn(client)).token;
  }

  /** The token of this device. */
  async signIn(client: Caller): Promise<Token> {
    if (this.#token && performance.now() < this.#token.renewAt) return this.#token;
    this.#signingIn ??= this.#exchange(client).finally(() => (this.#signingIn = undefined));
    return (this.#token = await this.#signingIn);
  }

  forget(token: string): boolean {
    if (this.#token?.token === token) this.#token = undefined;
    return true;
  }

  async #exchange(client: Caller): Promise<Token & { renewAt: number }> {
    // A challenge is good once. When the answer is lost, the next try needs a new one.
    for (let tries = 1; ; tries++) {
      const begun = performance.now();
      const { challenge, publicOrigins } = await client.call("POST", "/v1/auth/challenge");
      const text = `ensemble-auth-v1\n${client.origin}\n${this.signer.publicKey}\n${challenge}`;
      const body = {
        publicKey: this.signer.publicKey,
        challenge,
        signature: encode(await this.signer.sign(utf8(text))),
        origin: client.origin,
        create: this.#create,
        ...(this.#create && this.invite && { invite: this.invite }),
      };
      try {
        const answer = await client.call("POST", "/v1/auth", { body });
        // The account is there. If it is deleted later, no other one takes its place.
        this.#create = false;
        const claims = claimsOf(answer.token);
        if (claims) this.#clockAhead = Date.now() - claims.iat * 1_000;
        return { ...answer, renewAt: begun + renewal(answer) };
      } catch (error) {
        const next = tries < 3 ? again(error, true) : undefined;
        if (!next) throw explained(error, client.origin, publicOrigins);
        await sleep(pause(tries, next.wanted));
      }
    }
  }
}

/** After how many milliseconds a token is renewed: a minute before its end, or in the last tenth of a short life. By the server's
 * own clock (`iat` and `exp`, RFC 7519), so that a wrong clock here does not matter. */
function renewal(answer: components["schemas"]["SignedIn"]): number {
  const claims = claimsOf(answer.token);
  const life = claims ? (claims.exp - claims.iat) * 1_000 : 60_000;
  return life - Math.min(life / 10, 60_000);
}

function claimsOf(token: string): { iat: number; exp: number; jti: string } | undefined {
  try {
    const claims = JSON.parse(fromUtf8(decode(token.split(".")[1] ?? "") ?? new Uint8Array()));
    return typeof claims.iat === "number" && typeof claims.exp === "number" ? claims : undefined;
  } catch {
    return undefined;
  }
}

/** The id of a token, for revoking it. */
export const tokenId = (token: string): string | undefined => claimsOf(token)?.jti;

function explained(error: unknown, origin: string, accepted: readonly string[] | undefined): unknown {
  const isOrigin = isProblem(error, "UNAUTHENTICATED") && accepted && accepted.length > 0 && !accepted.includes(origin);
  if (!isOrigin) return error;
  const detail = `The server accepts sign-ins only at ${accepted.join(", ")}, and this is ${origin}. Use one of these addresses.`;
  return new Problem({ detail, code: error.code, title: error.title }, error.status, undefined);
}
