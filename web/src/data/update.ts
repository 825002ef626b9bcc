/** The version of the page that this browser keeps, and a newer one. It is taken only when a person asks for it. */
import { Store } from "../base/store.ts";
import { scriptUrl } from "../base/trusted.ts";
import type { ToWorker } from "../base/worker-words.ts";

export interface Versions {
  /** SHA-256 over the files of the kept version, in hex. Absent while no version is kept. */
  digest: string | undefined;
  /** A newer version that waits. */
  next: { digest: string; take: () => void } | undefined;
  /** Another tab has changed to a newer version than this one runs. */
  isOld: boolean;
}

export const versions = new Store<Versions>({ digest: undefined, next: undefined, isOld: false });

/** A newer version is looked for when the page is seen again, at most this often. */
const LOOK_MS = 10 * 60_000;

let isAsked = false;

/** Keeps the page in this browser, and looks for newer versions. */
export async function keepPage(): Promise<void> {
  const container = navigator.serviceWorker as ServiceWorkerContainer | undefined;
  if (!container || !import.meta.env.PROD) return;
  const hadOne = container.controller !== null;
  container.addEventListener("controllerchange", () => {
    // The browser's data of this page was cleared, its worker included.
    if (!container.controller) return;
    if (isAsked) location.reload();
    else if (hadOne) versions.update((before) => ({ ...before, isOld: true, next: undefined }));
    else void showDigest(container);
  });
  const registration = await container.register(scriptUrl("/sw.js"), { updateViaCache: "none" });
  const look = (worker: ServiceWorker | null): void => {
    if (worker?.state === "installed" && registration.active) void showNext(worker);
    else worker?.addEventListener("statechange", () => look(worker.state === "installed" ? worker : null), { once: true });
  };
  look(registration.waiting ?? registration.installing);
  registration.addEventListener("updatefound", () => look(registration.installing));
  await showDigest(container);
  let looked = performance.now();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || performance.now() - looked < LOOK_MS) return;
    looked = performance.now();
    // Without a connection there is nothing to find.
    registration.update().catch(() => undefined);
  });
}

/** Looks for a newer version now. */
export async function lookForNew(): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration();
  await registration?.update();
}

async function showDigest({ controller }: ServiceWorkerContainer): Promise<void> {
  if (!controller) return;
  const digest = await digestOf(controller);
  versions.update((before) => ({ ...before, digest }));
}

async function showNext(worker: ServiceWorker): Promise<void> {
  const digest = await digestOf(worker);
  const take = (): void => {
    isAsked = true;
    say(worker, "take over");
  };
  versions.update((before) => ({ ...before, next: { digest, take } }));
}

function say(worker: ServiceWorker, word: ToWorker, ports: MessagePort[] = []): void {
  worker.postMessage(word, ports);
}

function digestOf(worker: ServiceWorker): Promise<string> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(String(data));
    say(worker, "digest", [port2]);
  });
}
