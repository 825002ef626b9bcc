/** Notifications that reach this device while no page is open: its subscription, and which kinds it wants. */
import type { components } from "@ensemble/client";
import { mine } from "./account.ts";
import { forget, keep, recall } from "./kept.ts";
import { changeDevice, ownDevice, subscribe } from "./subscription.ts";

export const KINDS = ["permission", "question", "finished", "failed", "away"] as const;
export type Kind = (typeof KINDS)[number];

/** Kept while notifications are on here. */
const WANTED = "notifications";

type Schemas = components["schemas"];

export interface Notifications {
  /** Why they cannot be switched on here. */
  missing: "support" | "home-screen" | "denied" | undefined;
  isOn: boolean;
  kinds: readonly Kind[];
}

const isApple = (): boolean =>
  /iPad|iPhone|iPod/.test(navigator.userAgent) || (navigator.platform === "MacIntel" && navigator.maxTouchPoints > 1);

function missing(): Notifications["missing"] {
  // Apple gives it to what was added to the home screen (iOS 16.4).
  if (isApple() && !matchMedia("(display-mode: standalone)").matches) return "home-screen";
  if (!("PushManager" in window) || !("Notification" in window) || !("serviceWorker" in navigator)) return "support";
  return Notification.permission === "denied" ? "denied" : undefined;
}

export async function notifications(): Promise<Notifications> {
  keepSubscribed();
  await renewing;
  const { notify, push } = await ownDevice(mine().client);
  const why = missing();
  const isOn = push === true && why === undefined && Notification.permission === "granted";
  return { missing: why, isOn, kinds: notify ?? KINDS };
}

function change(body: Schemas["UpdateDevice"]): Promise<void> {
  return changeDevice(mine().client, body);
}

/** Asks the person for permission, and subscribes. Only after a click: browsers ask for nothing otherwise. */
export async function switchOn(): Promise<void> {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("This browser blocks notifications from this page. Allow them next to its address.");
  const { pushManager } = await navigator.serviceWorker.ready;
  await subscribe(mine().client, pushManager);
  await keep("typed", WANTED, true);
}

export async function switchOff(): Promise<void> {
  await forget(WANTED);
  await change({ pushSubscription: null });
  await endPushes();
}

let renewing: Promise<void> | undefined;

/** A push service may end a subscription: then the server has none, or the browser. Where notifications are on, another one is made. */
export function keepSubscribed(): void {
  // A failure changes nothing, and the settings show it.
  renewing ??= renew().catch(() => undefined);
}

async function renew(): Promise<void> {
  if (missing() !== undefined || Notification.permission !== "granted") return;
  const registration = await navigator.serviceWorker.getRegistration();
  if (!registration) return;
  const [wanted, has] = await Promise.all([recall<boolean>(WANTED), registration.pushManager.getSubscription()]);
  if (!wanted && !has) return;
  const { client } = mine();
  if (has && (await ownDevice(client)).push === true) return;
  await subscribe(client, registration.pushManager);
}

export function setKinds(kinds: readonly Kind[]): Promise<void> {
  return change({ notify: [...kinds] });
}

/** Ends the subscription in this browser. */
export async function endPushes(): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration();
  await (await registration?.pushManager?.getSubscription())?.unsubscribe();
}
