/** Repeats something that lasts, such as following a stream, after it has failed. */
import { Distrust, isProblem, mayPass, pause, sleep } from "@ensemble/client";

/** A run that lasted this many milliseconds did not fail at its start. */
const WENT_WELL = 30_000;
const PAUSES = { first: 1_000, longest: 10_000 };

/** Whether trying again changes nothing: the server is not to be trusted, or says that it is wrong to ask. */
export function isFinal(error: unknown): boolean {
  return error instanceof Distrust || (isProblem(error) && error.status < 500 && error.status !== 409 && !mayPass(error));
}

/** Whether the fault is the server's or the network's, so that it may heal by itself: no answer, a fault, or an unusable answer. */
export function mayHeal(error: unknown): boolean {
  return (
    mayPass(error) ||
    (isProblem(error) && error.status >= 500) ||
    error instanceof TypeError ||
    error instanceof ReferenceError ||
    error instanceof SyntaxError
  );
}

/** Runs it until it ends by itself, the signal is aborted, or its error is a final one. `onError` gets each error. */
export async function keepTrying(
  run: () => Promise<void>,
  onError: (error: unknown) => void,
  signal: AbortSignal,
  pauses = PAUSES,
): Promise<void> {
  for (let failures = 1; !signal.aborted; failures++) {
    const begun = performance.now();
    try {
      return await run();
    } catch (error) {
      if (signal.aborted) return;
      onError(error);
      if (isFinal(error)) return;
    }
    if (performance.now() - begun > WENT_WELL) failures = 1;
    await sleep(pause(failures, undefined, pauses), signal).catch(() => undefined);
  }
}
