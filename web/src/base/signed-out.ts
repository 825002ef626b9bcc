/** Tells the other tabs of this browser that its account is signed out. They would keep using keys that are wiped. */

/** One for the page: a channel does not receive its own messages. */
let channel: BroadcastChannel | undefined;
const opened = (): BroadcastChannel => (channel ??= new BroadcastChannel("ensemble signed out"));

export function tellSignedOut(): void {
  opened().postMessage("signed out");
}

/** Calls back when another tab has signed out. Returns a function that stops it. */
export function whenSignedOut(run: () => void): () => void {
  opened().onmessage = run;
  return () => {
    channel?.close();
    channel = undefined;
  };
}
