/** Tells the other tabs of this browser that its account is signed out. They would go on with keys that are wiped. */

/** One for the page: a channel does not hear itself. */
let channel: BroadcastChannel | undefined;
const opened = (): BroadcastChannel => (channel ??= new BroadcastChannel("ensemble signed out"));

export function tellSignedOut(): void {
  opened().postMessage("signed out");
}

/** Calls back when another tab has signed out. Returns how to stop that. */
export function whenSignedOut(run: () => void): () => void {
  opened().onmessage = run;
  return () => {
    channel?.close();
    channel = undefined;
  };
}
