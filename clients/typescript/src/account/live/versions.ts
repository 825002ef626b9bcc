// The version of a right. A machine takes only a higher one for the same person, so what takes a right away has to be above all that was given
// before: a server may keep that back and deliver it later.

import type { AccessGrant } from "../../protocol/transcript/body.js";
import type { Context } from "../context.js";
import { knownSession, noteGiven } from "../sessions/known.js";
import type { Revocation } from "../unfinished.js";

/** A machine refuses a version that is further ahead of its clock, in milliseconds. */
export const CLOCKS = 5 * 60_000;

type Kept = Pick<Context, "store">;

/** What the next version in a session depends on. `clocks`: the earlier and the later one of this device and the server. */
export class Versions {
  constructor(
    private readonly context: Kept,
    private readonly session: string,
    private readonly clocks: readonly [earlier: number, later: number],
  ) {}

  static of(context: Context, session: string): Versions {
    return new Versions(context, session, context.credential.clocks());
  }

  /** Of a right that is given. A server whose clock is ahead, or a device whose clock is, makes it no later: what is signed for a later time
   * could be kept back until what takes it away is older. `known` is what the machine has said of the person, `taking` what is to take a right
   * away from them and may not have arrived. */
  toGive(known: AccessGrant | undefined, taking: Revocation | undefined): Promise<number> {
    const [earlier] = this.clocks;
    // The machine refuses one by a clock that is far ahead, and would refuse what is above it.
    const onItsWay = taking && taking.version <= earlier + CLOCKS ? taking.version : 0;
    const next = (given: number): number => Math.max(earlier, Math.max(known?.version ?? 0, onItsWay, given) + 1);
    return noteGiven(this.context, this.session, next);
  }

  /** Of what takes a right away. `refused`: the machine has refused this version because it is ahead of its clock. */
  async toTake(known: AccessGrant | undefined, refused?: number): Promise<number> {
    const [earlier, later] = this.clocks;
    const given = ((await knownSession(this.context, this.session))?.given ?? 0) + 1;
    // The machine refuses what was given with such a version too.
    const counts = refused === undefined || given < refused;
    return Math.max(refused === undefined ? later : earlier, (known?.version ?? 0) + 1, counts ? given : 0);
  }
}
