// A person without a connection, with the page closed, and with more tabs than a browser has connections.
//
// `crates/cli/tests/stories/page.rs` runs this as it runs the first one.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";
import { exists, isKept, phase, signUp, steps, until } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

/** What the page has kept in the browser, as it lies in its database. */
const kept = (page) =>
  page.evaluate(async () => {
    const done = (request) =>
      new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const db = await done(indexedDB.open(`ensemble ${location.origin} kept`));
    const records = db.objectStoreNames.contains("records") ? db.transaction("records").objectStore("records") : undefined;
    if (!records) return { names: [], text: "", isKeySecret: false };
    const [names, values, key] = [
      await done(records.getAllKeys()),
      await done(records.getAll()),
      await done(records.get("key")),
    ];
    db.close();
    const text = values.map((value) => (value?.data ? new TextDecoder("latin1").decode(value.data) : "")).join("");
    return { names, text, isKeySecret: key?.extractable === false };
  });

describe("the page and a person who is away", { timeout: 25 * 60_000 }, () => {
  let browser, me, session, path;
  before(async () => {
    browser = await launch();
    me = await person(browser, origin);
    await me.context.grantPermissions(["notifications"], { origin });
  });
  after(async () => {
    if (session) await ensemble(["stop", session]).catch(() => undefined);
    await browser?.close();
  });
  const step = steps();
  /** Requests fail while there is no connection, and the browser says so. */
  const withoutLosses = () => {
    const left = me.faults.filter((fault) => !/ERR_INTERNET_DISCONNECTED|ERR_NETWORK_CHANGED/.test(fault));
    me.faults.splice(0, me.faults.length, ...left);
  };

  step("a session is known to the page", async () => {
    const { page, checked } = me;
    await signUp(page, origin);
    session = await ensemble(["claude", "--title", "Far away", "--dir", "work", "--detach", "[[say the first words]]"]);
    await page
      .getByRole("main")
      .getByRole("link", { name: /Far away/ })
      .click();
    await page.getByRole("log").getByText("the first words", { exact: true }).waitFor();
    await phase(page, "Ready").waitFor();
    // What is kept from now on has the words.
    const since = new Date().toISOString();
    await ensemble(["prompt", session, "[[say some more]]"]);
    await page.getByRole("log").getByText("some more", { exact: true }).waitFor();
    await page.getByLabel("Prompt").fill("half a thought");
    await isKept(page, "view ", since);
    await isKept(page, "draft ");
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    const { text, isKeySecret } = await kept(page);
    assert.ok(isKeySecret && text.length > 0);
    for (const word of ["half a thought", "the first words", "Far away"])
      assert.ok(!text.includes(word), `${word} is in the clear`);
    checked();
  });

  step("without a connection the page opens, shows what it knew, and has what was typed", async () => {
    const { page, context, checked } = me;
    await context.setOffline(true);
    await page.getByText(/^No connection to the server since/).waitFor();
    await page.reload();
    await page.getByRole("log").getByText("the first words", { exact: true }).waitFor();
    await page.getByText(/^Offline copy from/).waitFor();
    await page.waitForFunction(() => document.querySelector("textarea")?.value === "half a thought");
    await page.getByText(/^No connection to the server since/).waitFor();
    await accessible(page, "session without a connection");
    await pictures(page, "offline-session");
    await page.goto(origin);
    await page.getByText(/^No connection to the server since/).waitFor();
    const entry = page.getByRole("main").getByRole("link", { name: /Far away/ });
    await entry.waitFor();
    await accessible(page, "home without a connection");
    await pictures(page, "offline-home");
    await entry.click();
    withoutLosses();
    checked();
  });

  step("what is sent meanwhile waits, outlives a reload, and comes through once when the connection is back", async () => {
    const { page, context, checked } = me;
    const prompt = page.getByLabel("Prompt");
    await prompt.fill("[[say sent later]]");
    await prompt.press("Enter");
    await page.getByText("Being sent…").waitFor();
    await isKept(page, "unsent ");
    await page.reload();
    await page.getByText("[[say sent later]]").first().waitFor();
    assert.equal(await prompt.inputValue(), "", "it is no draft any more");
    await context.setOffline(false);
    await page.getByRole("log").getByText("sent later", { exact: true }).waitFor();
    await page.getByText(/^No connection/).waitFor({ state: "detached" });
    await page.getByText("Being sent…").waitFor({ state: "detached" });
    const log = (await ensemble(["log", session, "--json"])).split("\n").map((line) => JSON.parse(line).body);
    assert.equal(log.filter(({ type, text }) => type === "prompt" && text === "[[say sent later]]").length, 1);
    withoutLosses();
    checked();
  });

  /** The worker of the page, and how something is pushed to it. */
  async function worker() {
    const [found] = me.context.serviceWorkers();
    const cdp = await me.context.newCDPSession(me.page);
    const updated = new Promise((resolve) =>
      cdp.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const one = registrations.find(({ scopeURL, isDeleted }) => scopeURL.startsWith(origin) && !isDeleted);
        if (one) resolve(one.registrationId);
      }),
    );
    await cdp.send("ServiceWorker.enable");
    const registrationId = await updated;
    await found.evaluate(() => {
      globalThis.tags = [];
      const show = registration.showNotification.bind(registration);
      registration.showNotification = (title, options) => {
        globalThis.tags.push(options.tag);
        return show(title, options);
      };
    });
    const push = (data) =>
      cdp.send("ServiceWorker.deliverPushMessage", {
        origin,
        registrationId,
        data: typeof data === "string" ? data : JSON.stringify(data),
      });
    const shown = () =>
      found.evaluate(async () =>
        (await registration.getNotifications()).map(({ title, body, actions, tag }) => ({
          title,
          body,
          tag,
          actions: actions.map(({ action }) => action),
        })),
      );
    return {
      /** All that were shown. */
      tags: () => found.evaluate(() => globalThis.tags),
      push,
      shown,
      /** Pushes, and gives the notification. One that names no session, as it was not read in time, is pushed again. */
      show: async (data) => {
        for (;;) {
          await push(data);
          const [one] = await until(shown, (all) => all.length === 1);
          if (one.title !== "A session needs you") return one;
          await found.evaluate(async () => {
            for (const one of await registration.getNotifications()) one.close();
          });
        }
      },
      click: (action) =>
        found.evaluate(async (which) => {
          const [notification] = await registration.getNotifications();
          dispatchEvent(new NotificationEvent("notificationclick", { notification, action: which }));
        }, action),
    };
  }

  /** What the session wants, as the server says. */
  const wants = async () => {
    const { sessions } = JSON.parse(await ensemble(["sessions", "--json"]));
    return sessions.find((one) => [one.session.id, one.session.ref].includes(session))?.session.attention;
  };

  step("a push says what is asked, and is denied from its notification", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    const pushes = await worker();
    await ensemble(["prompt", session, "[[run touch pushed]]"]);
    const card = page.getByRole("region", { name: /The agent asks/ });
    await card.waitFor();
    let attention = await until(wants, (one) => one?.kind === "permission");
    const sessionId = new URL(
      await page
        .getByRole("main")
        .getByRole("link", { name: /Far away/ })
        .first()
        .getAttribute("href"),
      origin,
    ).pathname
      .split("/")
      .pop();
    const shown = await pushes.show({ kind: "permission", sessionId, attention: attention.id });
    assert.equal(shown.title, "Far away");
    assert.match(shown.body, /touch pushed/);
    assert.deepEqual([shown.tag, shown.actions], [attention.id, ["open", "deny"]]);
    await pushes.click("deny");
    await card.waitFor({ state: "detached" });
    assert.equal(await exists("pushed"), false);
    assert.deepEqual(await until(pushes.shown, (all) => all.length === 0), []);

    // What is answered elsewhere closes it, too.
    await ensemble(["prompt", session, "[[run touch again]]"]);
    await card.waitFor();
    attention = await until(wants, (one) => one?.kind === "permission" && one.id !== shown.tag);
    await pushes.push({ kind: "permission", sessionId, attention: attention.id });
    await until(pushes.shown, (all) => all.length === 1);
    await card.getByRole("button", { name: "Allow once" }).click();
    await until(pushes.shown, (all) => all.length === 0);

    // A person who looks at the session needs no notification, and what has finished is marked as seen, for all devices.
    const marked = page.waitForResponse(
      (one) => one.ok() && one.request().method() === "PATCH" && /"attention"/.test(one.request().postData() ?? ""),
    );
    // If an earlier step fails, that one is reported.
    marked.catch(() => undefined);
    await page
      .getByRole("main")
      .getByRole("link", { name: /Far away/ })
      .first()
      .click();
    await page
      .getByRole("log")
      .getByText(/denied by you/)
      .waitFor();
    await marked;
    assert.equal((await wants())?.kind ?? "none", "none");
    attention = { kind: "finished", id: "AAAAAAAAAAA" };
    await pushes.push({ kind: "finished", sessionId, attention: attention.id });
    await until(pushes.tags, (tags) => tags.includes(attention.id));
    await until(pushes.shown, (all) => all.length === 0);
    await page.goto(`${origin}/settings`);
    // What the session does want stays, whatever else the page learns of it.
    await ensemble(["prompt", session, "[[say it is over]]"]);
    attention = await until(wants, (one) => one?.kind === "finished");
    const done = await pushes.show({ kind: "finished", sessionId, attention: attention.id });
    assert.deepEqual([done.title, done.body, done.tag, done.actions], ["Far away", "It is done.", attention.id, ["open"]]);
    // *Open* leads to the session: to a new tab, or to the one that shows it.
    const opened = () => me.context.serviceWorkers()[0].evaluate(() => globalThis.opened);
    await me.context.serviceWorkers()[0].evaluate(() => {
      // Browsers open and show tabs after a real click only.
      globalThis.opened = [];
      self.clients.openWindow = async (path) => void globalThis.opened.push(["new", path]);
      WindowClient.prototype.focus = async function focus() {
        globalThis.opened.push(["there", new URL(this.url).pathname]);
      };
    });
    await pushes.click("open");
    assert.deepEqual(await until(opened, (all) => all.length === 1), [["new", `/sessions/${sessionId}`]]);
    await pushes.push({ kind: "finished", sessionId, attention: attention.id });
    await until(pushes.shown, (all) => all.length > 0);
    // A tab that shows the session closes the notification, so it is taken before.
    await me.context.serviceWorkers()[0].evaluate(async () => {
      [globalThis.taken] = await registration.getNotifications();
    });
    const other = await me.context.newPage();
    // Home says what has ended since the person last looked.
    await other.goto(origin);
    await other
      .getByRole("region", { name: "Finished" })
      .getByRole("link", { name: /Far away/ })
      .waitFor();
    await accessible(other, "home with what has finished");
    await other.goto(`${origin}/sessions/${sessionId}`);
    await me.context
      .serviceWorkers()[0]
      .evaluate(() =>
        dispatchEvent(new NotificationEvent("notificationclick", { notification: globalThis.taken, action: "" })),
      );
    assert.deepEqual((await until(opened, (all) => all.length === 2))[1], ["there", `/sessions/${sessionId}`]);
    await other.close();
    // What cannot be read is shown all the same.
    await pushes.push("{");
    const all = await until(pushes.shown, (some) => some.some(({ tag }) => tag === "ensemble"));
    assert.equal(all.find(({ tag }) => tag === "ensemble").title, "A session needs you");
    checked();
  });

  step("a subscription that the browser has ended is made again", async () => {
    const { checked } = me;
    const [found] = me.context.serviceWorkers();
    // No push service is reached from a test, so the browser's part is made up.
    await found.evaluate(async () => {
      const encode = (bytes) =>
        btoa(String.fromCharCode(...new Uint8Array(bytes)))
          .replaceAll("+", "-")
          .replaceAll("/", "_")
          .replaceAll("=", "");
      const { publicKey } = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, ["deriveBits"]);
      const keys = {
        p256dh: encode(await crypto.subtle.exportKey("raw", publicKey)),
        auth: encode(crypto.getRandomValues(new Uint8Array(16))),
      };
      PushManager.prototype.getSubscription = async () => null;
      PushManager.prototype.subscribe = async (options) => {
        globalThis.subscribed = options;
        return { toJSON: () => ({ endpoint: "https://push.example.com/again", keys }) };
      };
      dispatchEvent(new ExtendableEvent("pushsubscriptionchange"));
    });
    const devices = async () => JSON.parse(await ensemble(["devices", "--json"])).devices;
    await until(devices, (all) => all.some(({ push }) => push === true));
    const { userVisibleOnly, applicationServerKey } = await found.evaluate(() => globalThis.subscribed);
    assert.deepEqual([userVisibleOnly, applicationServerKey.length], [true, 87]);
    checked();
  });

  step("notifications are switched on with a click, by kind", async () => {
    const { context, checked } = me;
    const page = await context.newPage();
    // No push service is reached from a test, so the browser's part and the server's are made up.
    await page.addInitScript(() => {
      const real = globalThis.fetch;
      const state = { push: false, notify: ["permission", "question"] };
      globalThis.asked = [];
      globalThis.fetch = async (input, init) => {
        const { pathname } = new URL(input.url ?? input, location.origin);
        if (pathname === "/v1/devices/push") return Response.json({ publicKey: "BA".padEnd(87, "A") });
        if (init?.method === "PATCH" && pathname.startsWith("/v1/devices/")) {
          const body = JSON.parse(init.body);
          globalThis.asked.push(body);
          if ("pushSubscription" in body) state.push = body.pushSubscription !== null;
          if (body.notify) state.notify = body.notify;
          return Response.json({});
        }
        const answer = await real(input, init);
        if (pathname !== "/v1/devices" || (init?.method ?? "GET") !== "GET") return answer;
        const { devices, ...rest } = await answer.json();
        return Response.json({ ...rest, devices: devices.map((one) => (one.current ? { ...one, ...state } : one)) });
      };
      const toJSON = () => ({ endpoint: "https://push.example/1", keys: { p256dh: "key", auth: "secret" } });
      PushManager.prototype.subscribe = (options) => Promise.resolve({ toJSON, options });
      PushManager.prototype.getSubscription = () => Promise.resolve(null);
    });
    await page.goto(`${origin}/settings`);
    await page.getByRole("button", { name: "Switch on" }).click();
    const finished = page.getByRole("checkbox", { name: /Work is done/ });
    await finished.waitFor();
    assert.equal(await finished.isChecked(), false);
    await finished.check();
    await until(
      () => page.evaluate(() => globalThis.asked.length),
      (count) => count === 2,
    );
    await accessible(page, "settings with notifications");
    await pictures(page, "settings-notifications");
    const subscribed = { pushSubscription: { endpoint: "https://push.example/1", keys: { p256dh: "key", auth: "secret" } } };
    const asked = () => page.evaluate(() => globalThis.asked);
    assert.deepEqual(await asked(), [subscribed, { notify: ["permission", "question", "finished"] }]);
    // The push service has ended the subscription, and the server knows of none: the page makes another one as it starts.
    await page.reload();
    await until(asked, ({ length }) => length === 1);
    await page.reload();
    await page.getByRole("button", { name: "Switch off" }).click();
    await page.getByRole("button", { name: "Switch on" }).waitFor();
    assert.deepEqual(await asked(), [subscribed, { pushSubscription: null }]);
    // What was switched off stays off.
    await page.reload();
    await page.getByRole("button", { name: "Switch on" }).waitFor();
    assert.deepEqual(await asked(), []);
    await page.close();
    checked();
  });

  step("ten tabs have four streams at most, and each of them is new when it is looked at", async () => {
    const { context, checked } = me;
    const open = new Set();
    const isStream = (request) => /\/(stream|events)$/.test(new URL(request.url()).pathname);
    let most = 0;
    context.on("request", (request) => {
      if (isStream(request)) open.add(request);
      most = Math.max(most, open.size);
    });
    for (const over of ["requestfinished", "requestfailed"]) context.on(over, (request) => open.delete(request));
    path = new URL(await me.page.locator("a[href^='/sessions/']").first().getAttribute("href"), origin).href;
    await me.page.close();
    const tabs = [];
    for (let at = 0; at < 10; at++) {
      const tab = await context.newPage();
      // In a browser without a screen every tab is seen.
      await tab.addInitScript(() => {
        let isHidden = false;
        Object.defineProperty(Document.prototype, "hidden", { get: () => isHidden });
        globalThis.hide = (now) => {
          isHidden = now;
          document.dispatchEvent(new Event("visibilitychange"));
        };
      });
      await tab.goto(path);
      await tab.getByRole("log").getByText("sent later", { exact: true }).waitFor();
      await tab.evaluate(() => globalThis.hide(true));
      tabs.push(tab);
    }
    await until(
      () => open.size,
      (count) => count === 1,
    );
    assert.ok(most <= 4, `${most} streams at once`);
    await ensemble(["prompt", session, "[[say for all tabs]]"]);
    for (const tab of [tabs[0], tabs[9]]) {
      await tab.bringToFront();
      await tab.evaluate(() => globalThis.hide(false));
      await tab.getByRole("log").getByText("for all tabs", { exact: true }).waitFor();
      await tab.evaluate(() => globalThis.hide(true));
    }
    // The tab that has the stream of the account is closed: another one takes it.
    await tabs[0].close();
    await tabs[5].bringToFront();
    await tabs[5].evaluate(() => globalThis.hide(false));
    await ensemble(["prompt", session, "[[run touch tabs]]"]);
    await tabs[5]
      .getByRole("region", { name: /The agent asks/ })
      .getByRole("button", { name: "Allow once" })
      .click();
    // Others were allowed before it, so the log does not say that this one was.
    await until(() => exists("tabs"), Boolean);
    checked();
  });

  step("after a minute without an answer it is not sent, and is sent again with its id when the person wants it", async () => {
    const { context, checked } = me;
    for (const tab of context.pages()) await tab.close();
    const page = await context.newPage();
    await page.goto(path);
    const prompt = page.getByLabel("Prompt");
    await prompt.waitFor();
    await context.setOffline(true);
    // Since when is not known where the page had no answer yet.
    await page.getByText(/^No connection to the server/).waitFor();
    // The minute is one of the page's clock, which stays ahead: no step comes after this one. What is drawn is drawn in the real time.
    await page.evaluate(() => (globalThis.drawn = globalThis.requestAnimationFrame));
    await page.clock.install();
    await page.evaluate(() => (globalThis.requestAnimationFrame = globalThis.drawn));
    await prompt.fill("[[say a minute later]]");
    await prompt.press("Enter");
    await page.getByText("Being sent…").waitFor();
    const failed = page.getByRole("alert").filter({ hasText: "Not sent" });
    await page.clock.fastForward(30_000);
    assert.ok(await page.getByText("Being sent…").isVisible());
    assert.equal(await failed.count(), 0, "it is given up within 30 s");
    await page.clock.fastForward(30_000);
    await failed.waitFor();
    await accessible(page, "a prompt that was not sent");
    await context.setOffline(false);
    await page.getByText(/^No connection/).waitFor({ state: "detached" });
    await failed.getByRole("button", { name: "Send again" }).click();
    await page.getByRole("log").getByText("a minute later", { exact: true }).waitFor();
    await failed.waitFor({ state: "detached" });
    const log = (await ensemble(["log", session, "--json"])).split("\n").map((line) => JSON.parse(line).body);
    assert.equal(log.filter(({ type, text }) => type === "prompt" && text === "[[say a minute later]]").length, 1);
    withoutLosses();
    checked();
  });
});
