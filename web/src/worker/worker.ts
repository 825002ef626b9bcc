/**
 * The service worker: it opens the page without a server, shows what is pushed, and changes to a new version only when a person asks for
 * it. The build bundles it into `/sw.js`.
 */
import type { ToWorker } from "../base/worker-words.ts";
import { answerTo, digest, install, tidy } from "./files.ts";
import { subscribe } from "../data/subscription.ts";
import { account, soon } from "./account.ts";
import { clicked } from "./clicked.ts";
import { pushed } from "./pushed.ts";

declare const self: ServiceWorkerGlobalScope;

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(tidy().then(() => self.clients.claim())));
self.addEventListener("fetch", (event) => {
  const answer = answerTo(event.request);
  if (answer) event.respondWith(answer);
});
self.addEventListener("message", (event) => {
  const word = event.data as ToWorker;
  if (word === "take over") event.waitUntil(self.skipWaiting());
  else if (word === "digest") event.waitUntil(digest().then((text) => event.ports[0]?.postMessage(text)));
});
self.addEventListener("push", (event) => event.waitUntil(pushed(event.data)));
self.addEventListener("notificationclick", (event) => event.waitUntil(clicked(event.notification, event.action)));
// The browser has ended the subscription. Without a new one, notifications would stop without a notice.
self.addEventListener("pushsubscriptionchange", (event) => {
  (event as ExtendableEvent).waitUntil(soon(account().then(({ client }) => subscribe(client, self.registration.pushManager))));
});
