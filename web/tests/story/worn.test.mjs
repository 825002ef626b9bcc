// A person whose browser keeps nothing, whose clock is wrong, whose keys do not open, and whose sessions are very long.
//
// `crates/cli/tests/stories/page.rs` runs this as it runs the first one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { chromium } from "playwright-core";
import { accessible, launch, OPTIONS, person, pictures, SOON, watch } from "../browser.mjs";
import { fill } from "./fill.mjs";
import { phase, signUp, steps } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;
const HOURS = 23 * 3_600_000;
const MANY = 10_000;
const lineOf = (number) => `line ${number}`;

/** What a terminal knows of a session: its id, and the newest number of its machine. */
async function known(session) {
  const { id } = JSON.parse(await ensemble(["session", "show", session, "--json"])).session;
  const numbers = (await ensemble(["log", session, "--json"])).split("\n").map((line) => JSON.parse(line).body.n ?? 0);
  return { id, n: Math.max(...numbers) };
}

/** Puts a record in place of what the page has kept under a name, sealed as the page does. */
const overwrite = (page, name, value, form) =>
  page.evaluate(
    async ([at, plain, version]) => {
      const done = (request) =>
        new Promise((resolve, reject) => {
          request.onsuccess = () => resolve(request.result);
          request.onerror = () => reject(request.error);
        });
      const db = await done(indexedDB.open(`ensemble ${location.origin} kept`));
      const key = await done(db.transaction("records").objectStore("records").get("key"));
      const iv = crypto.getRandomValues(new Uint8Array(12));
      const bytes = new TextEncoder().encode(JSON.stringify(plain));
      const data = await crypto.subtle.encrypt(
        { name: "AES-GCM", iv, additionalData: new TextEncoder().encode(at) },
        key,
        bytes,
      );
      await done(
        db
          .transaction("records", "readwrite")
          .objectStore("records")
          .put({ form: version, iv, data, at: new Date().toISOString() }, at),
      );
      db.close();
    },
    [name, value, form],
  );

describe("a browser that is out of order, and what is very long", { timeout: 25 * 60_000 }, () => {
  let browser, me, session, runner, long, filling;
  before(async () => {
    browser = await launch();
    me = await person(browser, origin);
  });
  after(async () => {
    if (session) await ensemble(["stop", session]).catch(() => undefined);
    runner?.kill();
    await browser?.close();
  });
  const step = steps();

  step("a session that will be long is begun, and filled meanwhile", async () => {
    const { page, checked } = me;
    await signUp(page, origin);
    const one = await ensemble(["claude", "--title", "Long", "--dir", "work", "--detach", "[[say begun]]"]);
    await page.getByRole("main").getByRole("link", { name: /Long/ }).click();
    await page.getByRole("log").getByText("begun", { exact: true }).waitFor();
    await phase(page, "Ready").waitFor();
    await ensemble(["stop", one]);
    await phase(page, "Ended").waitFor();
    long = await known(one);
    await page.goto(origin);
    filling = fill(origin, long.id, MANY, long.n);
    // The step that waits for it gets a failure.
    filling.catch(() => undefined);
    checked();
  });

  step("an agent says a megabyte in one line, and the page keeps working", async () => {
    const { page, checked } = me;
    session = await ensemble(["claude", "--title", "Wide", "--dir", "work", "--detach", "[[say ready]]"]);
    await page.getByRole("main").getByRole("link", { name: /Wide/ }).click();
    await phase(page, "Ready").waitFor();
    await ensemble(["prompt", session, `[[repeat 1024 ${"w".repeat(1_024)}]]`]);
    await page
      .getByRole("log")
      .getByText(/w{1000}/)
      .first()
      .waitFor();
    await phase(page, "Ready").waitFor();
    await page.getByLabel("Prompt").fill("[[say after it]]");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByText("after it", { exact: true }).waitFor();
    // The turn before this one has ended now.
    const texts = (await ensemble(["log", session, "--json"]))
      .split("\n")
      .map((line) => JSON.parse(line).body)
      .filter(({ type }) => type === "text");
    assert.equal(texts.map(({ text }) => text.replaceAll(/[^w]/g, "")).join("").length, 1 << 20);
    await page.reload();
    await page.getByRole("log").getByText("after it", { exact: true }).waitFor();
    await accessible(page, "a megabyte in one line");
    checked();
  });

  step("titles of any length fit every screen, with what is asked", async () => {
    const { page, checked } = me;
    const spaces =
      "Look at the flaky test that waits for a limiter that refuses the first request of a minute and then lets everything pass";
    const asking = [];
    for (const title of ["W".repeat(400), spaces]) {
      asking.push(
        await ensemble([
          "claude",
          "--title",
          title,
          "--dir",
          "work",
          "--detach",
          `[[run touch ${String(asking.length).repeat(200)}]]`,
        ]),
      );
    }
    const request = page.getByRole("region", { name: /The agent asks/ });
    for (const session of asking) {
      await page.goto(`${origin}/sessions/${(await known(session)).id}`);
      await request.waitFor();
      await accessible(page, "a session with a long title");
      await page.getByRole("button", { name: "Share" }).click();
      await accessible(page, "a long title, shared");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Details" }).click();
      await accessible(page, "details of a long title");
      await page.keyboard.press("Escape");
    }
    await page.goto(origin);
    await request.nth(1).waitFor();
    await accessible(page, "home with long titles");
    await pictures(page, "worn-titles");
    await page.keyboard.press("Control+k");
    await accessible(page, "palette with long titles");
    for (const session of asking) await ensemble(["stop", session]);
    await request.first().waitFor({ state: "detached" });
    checked();
  });

  step("as much as a person can send in one line is shown in pieces", async () => {
    const { page, checked } = me;
    const { session: talk } = JSON.parse(await ensemble(["session", "create", "--title", "People", "--json"]));
    // What fits into a message of 1 MiB when it is sealed.
    await ensemble(["session", "send", talk.id, "-"], "p".repeat(780_000));
    await page.goto(`${origin}/sessions/${talk.id}`);
    await page
      .getByRole("log")
      .getByText(/p{1000}/)
      .first()
      .waitFor();
    const more = page.getByRole("log").getByRole("button", { name: /^Show more/ });
    const before = await page.getByRole("log").evaluate((log) => log.innerText.length);
    await more.click();
    await page.waitForFunction((length) => document.querySelector("[role=log]").innerText.length > length + 100_000, before);
    await accessible(page, "a long line of a person");
    checked();
  });

  step("a session whose keys do not open says so, in the list and on its page", async () => {
    const { page, checked } = me;
    const token = await ensemble(["token"]);
    const bytes = (length) => Buffer.alloc(length, 7).toString("base64url");
    const body = { metadata: bytes(80), encryptionKey: bytes(200), contentEpoch: 1 };
    const answer = await fetch(`${origin}/v1/sessions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const made = await answer.json();
    assert.equal(answer.status, 201, JSON.stringify(made));
    await page.goto(origin);
    await page
      .getByRole("main")
      .getByRole("link", { name: /its key is not for this device/ })
      .click();
    await page
      .getByRole("alert")
      .filter({ hasText: /\w+ .*\./ })
      .first()
      .waitFor();
    await accessible(page, "a session that does not open");
    await pictures(page, "worn-keys");
    // A live one, of which the server gives another key than its own.
    const { id } = await known(session);
    await page.route(`${origin}/v1/sessions/${id}`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), encryptionKey: body.encryptionKey } });
    });
    await page.goto(`${origin}/sessions/${id}`);
    await page
      .getByRole("alert")
      .filter({ hasText: /\w+ .*\./ })
      .first()
      .waitFor();
    await page.unrouteAll({ behavior: "ignoreErrors" });
    checked();
  });

  step(
    "a clock that is wrong by hours is said: all is read, prompts are taken, and links last as long as was chosen",
    async () => {
      const { context, checked } = me;
      runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
      for (const [wrong, said] of [
        [HOURS, /23 h 0 min ahead of the server/],
        [-HOURS, /23 h 0 min behind the server/],
      ]) {
        const page = await context.newPage();
        await page.addInitScript((by) => {
          const Real = Date;
          globalThis.Date = class extends Real {
            constructor(...given) {
              super(...(given.length === 0 ? [Real.now() + by] : given));
            }

            static now() {
              return Real.now() + by;
            }
          };
        }, wrong);
        await page.goto(`${origin}/sessions/${(await known(session)).id}`);
        await page.getByText(said).waitFor();
        const words = wrong > 0 ? "from tomorrow" : "from yesterday";
        await page.getByLabel("Prompt").fill(`[[say ${words}]]`);
        await page.getByRole("button", { name: "Send" }).click();
        const log = page.getByRole("log");
        // It is signed with the time of the server, which is followed within a day.
        await log.getByText(words, { exact: true }).waitFor();
        // A link lasts as long as was chosen, by the clock of the server that ends it.
        await page.getByRole("button", { name: "Share" }).click();
        const dialog = page.getByRole("dialog", { name: "Share this session" });
        await dialog.getByLabel("Ends").selectOption({ label: "in an hour" });
        const made = page.waitForRequest((request) => request.url().endsWith("/public-share") && request.method() === "POST");
        await dialog.getByRole("button", { name: /^Make a (new )?link$/ }).click();
        const { expiresAt } = (await made).postDataJSON();
        const left = Date.parse(expiresAt) - Date.now();
        assert.ok(left > 50 * 60_000 && left < 70 * 60_000, `${left} ms are left`);
        if (wrong > 0) await pictures(page, "worn-clock");
        // A session that is begun here is signed with the time of the server, too.
        await page.goto(`${origin}/start`);
        await page.getByRole("button", { name: "Start", exact: true }).and(page.locator(":enabled")).waitFor();
        await page.getByLabel("Directory").fill(join(homedir(), "work"));
        await page.getByLabel("Agent").selectOption("claude");
        await page.getByLabel("First prompt").fill(`[[say begun ${words}]]`);
        await page.getByRole("button", { name: "Start", exact: true }).click();
        // It is asked once in this browser.
        if (wrong > 0) await page.getByRole("button", { name: "Start there" }).click();
        await page.getByRole("log").getByText(`begun ${words}`, { exact: true }).waitFor();
        await page.getByText(said).waitFor();
        await page.close();
      }
      checked();
    },
  );

  step("what another version of the page has kept does not keep this one from opening", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    await page.getByRole("main").getByRole("link", { name: /Wide/ }).waitFor();
    const broken = [{ id: "x", nothing: "else" }];
    for (const form of [2, 1]) {
      await page.goto("about:blank");
      await page.goto(`${origin}/icon.svg`);
      await overwrite(page, "sessions", broken, form);
      await page.goto(origin);
      // What has another form is not read. What only says that it has this one fails once, and then is forgotten.
      const again = page.getByRole("button", { name: "Load it again" });
      const entry = page.getByRole("main").getByRole("link", { name: /Wide/ });
      await entry.or(again).waitFor();
      if (await again.isVisible()) {
        assert.equal(form, 1, "another form was read");
        await accessible(page, "a page that has failed");
        await again.click();
      }
      await entry.waitFor();
    }
    // The browser reports the failure, which the test made.
    me.faults.splice(0, me.faults.length, ...me.faults.filter((fault) => !/TypeError|favicon\.ico/.test(fault)));
    checked();
  });

  step("a full browser says that it keeps nothing, and works", async () => {
    const full = await person(browser, origin);
    const { page, context, checked } = full;
    await page.goto(origin);
    const make = page.getByRole("button", { name: "Make an account" });
    await make.waitFor();
    const cdp = await context.newCDPSession(page);
    await cdp.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 1 });
    await make.click();
    await page.getByRole("alert").getByText("This browser has no room left").waitFor();
    await accessible(page, "a browser without room");
    await pictures(page, "worn-full");
    await cdp.send("Storage.overrideQuotaForOrigin", { origin });
    await make.click();
    await page.getByRole("list", { name: "Recovery words" }).waitFor();
    checked();
    await context.close();
    // One that becomes full while its person works.
    const mine = await me.context.newCDPSession(me.page);
    await me.page.evaluate(() => {
      try {
        for (let at = 0; ; at++) localStorage.setItem(`full ${at}`, "x".repeat(200_000));
      } catch {
        // It is full.
      }
    });
    await me.page.goto(`${origin}/sessions/${(await known(session)).id}`);
    await me.page.getByLabel("Prompt").waitFor();
    await mine.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 1 });
    const isSaid = me.page.getByText("This browser has no storage left for what you type.");
    // Chromium notices a new quota after a while.
    for (let at = 0; !(await isSaid.isVisible()); at++) {
      assert.ok(at < 200, "the page does not say that nothing is kept");
      await me.page.getByLabel("Prompt").fill(`[[say without room]] ${"x".repeat(at)}`);
      await isSaid.waitFor({ timeout: 1_000 }).catch(() => undefined);
    }
    await pictures(me.page, "worn-draft");
    const isFull = me.page.getByText("This browser has no storage left.");
    const says = async (page, text) => {
      await page.getByLabel("Prompt").fill(`[[say ${text}]]`);
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByRole("log").getByText(text, { exact: true }).waitFor();
    };
    await says(me.page, "without room");
    // One that was full before it was opened.
    await me.page.reload();
    await me.page.getByRole("log").getByText("without room", { exact: true }).waitFor();
    await isFull.waitFor();
    await says(me.page, "opened without room");
    assert.equal(await isFull.count(), 1, "it is said once");
    await accessible(me.page, "a browser that is full");
    await mine.send("Storage.overrideQuotaForOrigin", { origin });
    await me.page.evaluate(() => localStorage.clear());
    me.checked();
  });

  step("a browser that refuses every write opens, and works from memory", async () => {
    const page = await me.context.newPage();
    await page.addInitScript(() => {
      const refuse = () => {
        throw new DOMException("The quota has been exceeded.", "QuotaExceededError");
      };
      Storage.prototype.setItem = refuse;
      IDBObjectStore.prototype.put = refuse;
      IDBObjectStore.prototype.add = refuse;
    });
    await page.goto(`${origin}/sessions/${(await known(session)).id}`);
    await page.getByLabel("Prompt").fill("[[say from memory]]");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByText("from memory", { exact: true }).waitFor();
    await page.getByText("This browser has no storage left.").waitFor();
    await page.getByRole("link", { name: "Machines" }).first().click();
    assert.equal(await page.getByText("This browser has no storage left.").count(), 1, "it is said once");
    await page.close();
    me.checked();
  });

  step("a browser that forbids the page to keep anything says so, and reads a public link", async () => {
    await me.page.getByRole("button", { name: "Share" }).click();
    const dialog = me.page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByRole("button", { name: /^Make a (new )?link$/ }).click();
    // The address of the link before is there until this one is made; only a new one is shown as a code.
    await dialog.getByRole("img", { name: "The address as a code" }).waitFor();
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    const folder = await mkdtemp(join(tmpdir(), "ensemble-forbidden-"));
    await mkdir(join(folder, "Default"));
    // As a person chooses it in the settings of Chromium.
    await writeFile(
      join(folder, "Default", "Preferences"),
      JSON.stringify({ profile: { default_content_setting_values: { cookies: 2 } } }),
    );
    const context = await chromium.launchPersistentContext(folder, OPTIONS);
    try {
      const { page, checked } = await watch(context, origin);
      await page.goto(origin);
      await page.getByText("This browser does not let the page keep anything.").waitFor();
      assert.equal(
        await page.evaluate(() => {
          try {
            return localStorage.length >= 0;
          } catch {
            return false;
          }
        }),
        false,
        "the browser keeps something all the same",
      );
      await accessible(page, "a browser that forbids");
      await pictures(page, "worn-forbidden");
      await page.goto(address);
      await page.getByRole("log").getByText("without room", { exact: true }).waitFor();
      checked();
    } finally {
      await context.close();
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    }
  });

  step("ten thousand messages: the end is shown soon, and what is above after scrolling", async () => {
    const { page, checked } = me;
    await filling;
    const log = page.getByRole("log");
    const asked = [];
    page.on("request", (request) => {
      const { pathname, search } = new URL(request.url());
      if (request.method() === "GET" && pathname.endsWith(`/sessions/${long.id}/messages`)) asked.push(search);
    });
    const begun = performance.now();
    await page.goto(`${origin}/sessions/${long.id}`);
    await log.getByText(lineOf(MANY), { exact: true }).waitFor();
    console.log(`the end of ${MANY} messages was shown after ${Math.round(performance.now() - begun)} ms`);
    assert.deepEqual(asked, ["?limit=300"], "more is read than is shown");
    // They are read in pages of 300 and drawn while scrolling up: at first by the wheel, then by the key that goes to the beginning, or
    // ten thousand would take minutes.
    const first = () =>
      log.evaluate((shown) => Math.min(...[...shown.innerText.matchAll(/^line (\d+)$/gm)].map(([, line]) => Number(line))));
    const upTo = async (number, up) => {
      let [highest, since] = [Infinity, performance.now()];
      for (let at; (at = await first()) > number;) {
        if (at < highest) [highest, since] = [at, performance.now()];
        assert.ok(performance.now() - since < SOON, `nothing comes above ${lineOf(at)}`);
        await up();
        await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      }
    };
    await log.hover();
    for (const number of [MANY - 100, MANY - 250, MANY - 700]) await upTo(number, () => page.mouse.wheel(0, -1_500));
    assert.ok(asked.length <= 4 && asked.every((search) => search.startsWith("?limit=300")), `${asked}`);
    const climbing = performance.now();
    await log.focus();
    await upTo(1, () => page.keyboard.press("Home"));
    await log.getByText(lineOf(1), { exact: true }).waitFor();
    console.log(
      `the first of ${MANY} messages was reached after ${Math.round(performance.now() - climbing)} ms, ${asked.length} pages`,
    );
    assert.equal(new Set(asked).size, asked.length, "nothing is read twice");
    assert.equal(await page.getByRole("button", { name: "Show earlier messages" }).count(), 0, "nothing is before the first");
    await page.getByRole("button", { name: "To the end" }).click();
    await log.getByText(lineOf(MANY), { exact: true }).waitFor();
    assert.ok((await page.locator(".turn-item").count()) < 200, "all that was loaded is drawn");
    checked();
  });

  step("a storage that is emptied under the page is said, with what to do", async () => {
    const { page, context, checked } = me;
    const cdp = await context.newCDPSession(page);
    // As a person does it in the settings of the browser.
    await cdp.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
    await page.getByRole("heading", { name: "This browser has forgotten your account" }).waitFor();
    await accessible(page, "a storage that was emptied");
    await pictures(page, "worn-emptied");
    assert.equal(await page.getByText("Another tab has changed").count(), 0, "nothing but the storage has changed");
    await page.getByRole("button", { name: "Start over" }).click();
    await page.getByRole("button", { name: "Make an account" }).waitFor();
    checked();
  });
});
