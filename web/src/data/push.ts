/** Notifications that reach this device while no page is open: its subscription, and which kinds it wants. */
import { isProblem } from "@ensemble/client";
import type { components } from "@ensemble/client";
import { mine } from "./account.ts";

export const KINDS = ["permission", "question", "finished", "failed", "away"] as const;
export type Kind = (typeof KINDS)[number];

type Schemas = components["schemas"];

export interface Notifications {
  /** Why they cannot be switched on here. */
  missing: "support" | "home-screen" | "denied" | undefined;
  isOn: boolean;
  kinds: readonly Kind[];
}

const isApple = (): boolean => /iPad|iPhone|iPod/.test(navigator.userAgent) || (navigator.platform === "MacIntel" && navigator.maxTouchPoints > 1);

function missing(): Notifications["missing"] {
  // Apple gives it to what was added to the home screen (iOS 16.4).
  if (isApple() && !matchMedia("(display-mode: standalone)").matches) return "home-screen";
  if (!("PushManager" in window) || !("Notification" in window) || !("serviceWorker" in navigator)) return "support";
  return Notification.permission === "denied" ? "denied" : undefined;
}

async function own(): Promise<Schemas["Device"]> {
  const { client } = mine();
  const { devices } = await client.data(client.http.GET("/v1/devices"));
  const found = devices.find(({ current }) => current);
  if (!found) throw new Error("This browser is not in your account's list of devices.");
  return found;
}

export async function notifications(): Promise<Notifications> {
  const { notify, push } = await own();
  const why = missing();
  const isOn = push === true && why === undefined && Notification.permission === "granted";
  return { missing: why, isOn, kinds: notify ?? KINDS };
}

async function change(body: Schemas["UpdateDevice"]): Promise<void> {
  const { id } = await own();
  const { client } = mine();
  await client.data(client.http.PATCH("/v1/devices/{id}", { params: { path: { id } }, body }));
}

/** Asks the person for leave, and subscribes. Only after a click: browsers ask for nothing otherwise. */
export async function switchOn(): Promise<void> {
  if ((await Notification.requestPermission()) !== "granted") throw new Error("The browser was told not to show notifications of this page. Allow them beside its address.");
  const { publicKey } = await serverKey();
  const { pushManager } = await navigator.serviceWorker.ready;
  // A subscription to another key is of no use.
  await (await pushManager.getSubscription())?.unsubscribe();
  const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
  await change({ pushSubscription: subscriptionOf(made) });
}

async function serverKey(): Promise<Schemas["PushKey"]> {
  const { client } = mine();
  try {
    return await client.data(client.http.GET("/v1/devices/push"));
  } catch (error) {
    throw isProblem(error, "NOT_FOUND") ? new Error("This server sends no notifications.") : error;
  }
}

function subscriptionOf(made: PushSubscription): Schemas["PushSubscription"] {
  const { endpoint, keys } = made.toJSON();
  const { p256dh, auth } = keys ?? {};
  if (endpoint === undefined || p256dh === undefined || auth === undefined) throw new Error("The browser's push service has given no keys.");
  return { endpoint, keys: { p256dh, auth } };
}

export async function switchOff(): Promise<void> {
  await change({ pushSubscription: null });
  await endPushes();
}

export function setKinds(kinds: readonly Kind[]): Promise<void> {
  return change({ notify: [...kinds] });
}

/** Ends the subscription in this browser. */
export async function endPushes(): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration();
  await (await registration?.pushManager?.getSubscription())?.unsubscribe();
}
