// What a machine can do, as it says itself: sealed to its owner and signed by the machine.

import { SealError } from "../../errors.js";
import { utf8 } from "../bytes.js";
import { isSigned } from "../ed25519.js";
import { openWith, type BoxPair } from "../hpke.js";

/** What the program on a machine can do. Words that are not known here are ignored. */
export interface DaemonState {
  /** What can be asked of it, for example `demo`. */
  readonly does: readonly string[];
  /** The agents that were there when the program started, and where. */
  readonly agents: readonly { readonly name: string; readonly path: string }[];
}

const FIRST_LINE = "ensemble-daemon-state-v2";
/** The longest body that counts, in bytes. */
const LONGEST = 16 << 10;
const unsigned = (): SealError => new SealError("signature", "It is not signed by the machine.");

/** Opens what the holder of this key has signed for this machine and version. */
export async function openDaemonState(
  sealed: string,
  pair: BoxPair,
  [machine, version]: readonly [string, number],
  machineKey: string,
): Promise<DaemonState> {
  const of = `${FIRST_LINE}\n${machine}\n${version}`;
  const opened = parse(new TextDecoder().decode(await openWith(pair, sealed, of, FIRST_LINE)));
  const { body, sig } = (opened ?? {}) as { body?: unknown; sig?: unknown };
  if (typeof body !== "string" || utf8(body).length > LONGEST) throw unsigned();
  if (!(await isSigned(machineKey, utf8(`${of}\n${body}`), sig))) throw unsigned();
  const { does, agents } = (parse(body) ?? {}) as { does?: unknown; agents?: unknown };
  const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
  return {
    does: list(does).filter((one) => typeof one === "string"),
    agents: list(agents).flatMap((one) => {
      const { name, path } = (one ?? {}) as { name?: unknown; path?: unknown };
      return typeof name === "string" && typeof path === "string" ? [{ name, path }] : [];
    }),
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
