/** A subscription of this browser at its push service, and the device that it belongs to. The page and its worker use it. */
import { isProblem, type Client } from "@ensemble/client";
import type { components } from "@ensemble/client";

type Schemas = components["schemas"];

export async function ownDevice(client: Client): Promise<Schemas["Device"]> {
  const { devices } = await client.call("GET", "/v1/devices");
  const found = devices.find(({ current }) => current);
  if (!found) throw new Error("This browser is not in your account's list of devices.");
  return found;
}

export async function changeDevice(client: Client, body: Schemas["UpdateDevice"]): Promise<void> {
  const { id } = await ownDevice(client);
  await client.call("PATCH", "/v1/devices/{id}", { path: { id }, body });
}

/** Makes a new subscription to this server's key and sends it to the server. */
export async function subscribe(client: Client, manager: PushManager): Promise<void> {
  const { publicKey } = await serverKey(client);
  // A subscription to another key is of no use.
  await (await manager.getSubscription())?.unsubscribe();
  const made = await manager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
  await changeDevice(client, { pushSubscription: subscriptionOf(made) });
}

async function serverKey(client: Client): Promise<Schemas["PushKey"]> {
  try {
    return await client.call("GET", "/v1/devices/push");
  } catch (error) {
    throw isProblem(error, "NOT_FOUND") ? new Error("This server sends no notifications.") : error;
  }
}

function subscriptionOf(made: PushSubscription): Schemas["PushSubscription"] {
  const { endpoint, keys } = made.toJSON();
  const { p256dh, auth } = keys ?? {};
  if (endpoint === undefined || p256dh === undefined || auth === undefined)
    throw new Error("The browser's push service has given no keys.");
  return { endpoint, keys: { p256dh, auth } };
}
