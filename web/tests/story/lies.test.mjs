// A person whose server answers with faults, with something else, with half an answer, or never.
//
// `crates/cli/tests/stories/page.rs` runs this. ENSEMBLE_URL is the real server. The page is at BETWEEN, where `lying.mjs` listens: no
// real server can be brought to answer so.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";
import { LIES, lying } from "./lying.mjs";
import { signUp, steps } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const server = new URL(process.env.ENSEMBLE_URL).origin;
const origin = new URL(process.env.BETWEEN).origin;

/** What the line over the page says of each, and what the page says that has not begun. */
const SAID = {
  500: [/^Something other than the server answers/, /error \(status 500\)/],
  fault: [/^The server has an error \(500\)/, /error \(status 500\)/],
  html: [/^Something other than the server answers/, /Something other/],
  half: [/^Something other than the server answers/, /Something other/],
  never: [/^The server does not answer/, /does not answer/],
};

describe("the page and a server that fails", { timeout: 25 * 60_000 }, () => {
  let browser, me, between, session;
  before(async () => {
    between = await lying(server, Number(new URL(origin).port));
    browser = await launch();
    me = await person(browser, origin);
  });
  after(async () => {
    await browser?.close();
    between?.stop();
  });
  const step = steps();

  /** What the browser says of answers that fail is what the story is about. */
  const checked = (one = me) => {
    one.faults.splice(0, one.faults.length, ...one.faults.filter((fault) => !/^console: Failed to load resource/.test(fault)));
    one.checked();
  };
  const lost = (page) => page.locator(".offline:not(.plain)");
  /** Marks the page: a reload would lose it. */
  const mark = (page) => page.evaluate(() => void (globalThis.stays = true));
  const stays = async (page) => assert.equal(await page.evaluate(() => globalThis.stays), true, "the page was loaded again");
  /** The line is there, and says what happened. Then the server is well again, and the line goes by itself. */
  async function heals(page, kind, isHealed, meanwhile = async () => {}) {
    await lost(page).filter({ hasText: SAID[kind][0] }).waitFor();
    assert.match(await lost(page).innerText(), /It is retried automatically\.$/);
    await meanwhile();
    await mark(page);
    between.tellTheTruth();
    await isHealed();
    await lost(page).waitFor({ state: "detached" });
    await stays(page);
  }

  step("an account is made although the server does not answer at first", async () => {
    const { page } = me;
    await page.goto(origin);
    await page.getByRole("button", { name: "Make an account" }).waitFor();
    between.lie("never");
    await page.getByRole("button", { name: "Make an account" }).click();
    await heals(
      page,
      "never",
      () => page.getByRole("list", { name: "Recovery words" }).waitFor(),
      async () => {
        await accessible(page, "welcome without a server");
        await pictures(page, "lies-welcome");
      },
    );
    checked();
  });

  step("a session of another account is known to the page", async () => {
    await me.context.close();
    me = await person(browser, origin);
    const { page } = me;
    await signUp(page, origin, server);
    session = JSON.parse(await ensemble(["session", "create", "--title", "True answers", "--json"])).session.id;
    await ensemble(["session", "send", session, "the first words"]);
    await page
      .getByRole("main")
      .getByRole("link", { name: /True answers/ })
      .click();
    await page.getByRole("log").getByText("the first words", { exact: true }).waitFor();
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    checked();
  });

  for (const [at, kind] of LIES.entries()) {
    step(
      `${kind}: an open session says so after 2 s and resumes by itself; loaded again, the page shows what it knew`,
      async () => {
        const { page } = me;
        const log = page.getByRole("log");
        between.lie(kind);
        await heals(page, kind, async () => {
          await ensemble(["session", "send", session, `after ${kind}`]);
          await log.getByText(`after ${kind}`, { exact: true }).waitFor();
        });
        // What was shown is kept a moment after it has come.
        await page.goto(origin);
        await page
          .getByRole("main")
          .getByRole("link", { name: /True answers/ })
          .waitFor();
        await lost(page).waitFor({ state: "detached" });
        between.lie(kind);
        await page.goto(`${origin}/sessions/${session}`);
        await log.getByText("the first words", { exact: true }).waitFor();
        await heals(
          page,
          kind,
          () => page.getByText(/^Offline copy from/).waitFor({ state: "detached" }),
          async () => {
            if (at > 0) return;
            await accessible(page, "a session whose server has a fault");
            await pictures(page, "lies-session");
          },
        );
        checked();
      },
    );
  }

  step("a browser that has only its keys says that its account is not open yet, and opens it", async () => {
    const { page } = me;
    for (const kind of ["fault", "never"]) {
      await page.goto(`${origin}/settings`);
      await page.getByRole("heading", { name: "Devices" }).waitFor();
      await page.goto("about:blank");
      between.lie(kind);
      await page.goto(origin, { waitUntil: "commit" });
      // What was shown is gone, and the keys are not.
      await page.evaluate(
        (name) =>
          new Promise((resolve, reject) => {
            const request = indexedDB.deleteDatabase(name);
            request.onsuccess = resolve;
            request.onerror = reject;
          }),
        `ensemble ${origin} kept`,
      );
      await page.reload();
      await page.getByRole("heading", { name: "Your account is not open yet" }).waitFor();
      await heals(
        page,
        kind,
        () =>
          page
            .getByRole("main")
            .getByRole("link", { name: /True answers/ })
            .waitFor(),
        async () => {
          if (kind === "never") return;
          await accessible(page, "an account that is not open yet");
          await pictures(page, "lies-opening");
        },
      );
    }
    checked();
  });

  step("a page that does not learn where its server is begins when it does", async () => {
    const { page } = me;
    for (const kind of ["500", "html", "never"]) {
      await page.evaluate(() => localStorage.removeItem("server"));
      between.lie(kind, (path) => path === "/server.json");
      await page.reload();
      await page.getByRole("heading", { name: "Ensemble cannot start yet" }).waitFor();
      await page.getByText(SAID[kind][1]).waitFor();
      if (kind === "500") {
        await accessible(page, "a page that cannot begin yet");
        await pictures(page, "lies-begin");
      }
      await mark(page);
      between.tellTheTruth();
      await page
        .getByRole("main")
        .getByRole("link", { name: /True answers/ })
        .waitFor();
      await stays(page);
    }
    checked();
  });

  step("a page of which a script does not come says so, and comes", async () => {
    const other = await person(browser, origin);
    between.lie("500", (path) => path.startsWith("/assets/start-"));
    await other.page.goto(origin);
    await other.page.getByText("Ensemble is loading.").waitFor();
    between.tellTheTruth();
    await other.page.getByRole("button", { name: "Make an account" }).waitFor();
    checked(other);
    await other.context.close();
  });

  step("every other screen comes by itself when the server does, a public link, too", async () => {
    const { page } = me;
    await page.goto(`${origin}/sessions/${session}`);
    await page.getByRole("button", { name: "Share" }).click();
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByRole("button", { name: "Make a link" }).click();
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    const reader = await person(browser, origin);
    between.lie("html");
    await reader.page.goto(address);
    await heals(reader.page, "html", () =>
      reader.page.getByRole("log").getByText("the first words", { exact: true }).waitFor(),
    );
    checked(reader);
    await reader.context.close();
    for (const [path, isThere] of [
      ["/settings", () => page.getByText("this browser").first()],
      ["/machines", () => page.getByText("No machines yet")],
      ["/runs", () => page.getByText("No runs yet")],
    ]) {
      between.lie("half");
      await page.goto(origin + path);
      await heals(page, "half", () => isThere().waitFor());
    }
    checked();
  });

  step("two tabs with different versions of the page work side by side", async () => {
    const { page, context } = me;
    const address = `${origin}/sessions/${session}`;
    const next = await context.newPage();
    for (const tab of [page, next]) {
      await tab.goto(address);
      await tab.getByRole("log").getByText("the first words", { exact: true }).waitFor();
    }
    const html = await (await fetch(`${server}/index.html`)).text();
    const changed = html.replace("<title>", '<meta name="version" content="next"><title>');
    const hash = (text) => createHash("sha256").update(text).digest("base64");
    between.change((path) => {
      if (path === "/index.html") return () => Buffer.from(changed);
      return path === "/sw.js" ? (bytes) => Buffer.from(bytes.toString().replace(hash(html), hash(changed))) : undefined;
    });
    await next.evaluate(async () => (await navigator.serviceWorker.getRegistration()).update());
    await next.getByText("Update available.").waitFor();
    await Promise.all([next.waitForEvent("load"), next.getByRole("button", { name: "Reload" }).click()]);
    await next.getByRole("log").getByText("the first words", { exact: true }).waitFor();
    assert.equal(await next.evaluate(() => document.querySelector("meta[name=version]")?.content), "next");
    await page.getByText("Another tab has changed to a new version.").waitFor();
    // What another version says to other tabs, and what this one cannot know.
    const user = await ensemble(["whoami", "--json"]).then((text) => JSON.parse(text).id);
    await next.evaluate((name) => {
      const channel = new BroadcastChannel(name);
      for (const said of [null, "hello", { state: "dozing" }, { state: { is: "open" } }, { hint: { kind: "planet", id: 7 } }])
        channel.postMessage(said);
    }, `ensemble events ${user}`);
    for (const [from, to, words] of [
      [page, next, "from the old one"],
      [next, page, "from the new one"],
    ]) {
      await from.getByLabel("Prompt").fill(words);
      await from.getByRole("button", { name: "Send" }).click();
      await to.getByRole("log").getByText(words, { exact: true }).waitFor();
    }
    // The old one has sent the new one what changes. It is closed, and the new one finds out by itself.
    await page.close();
    await ensemble(["session", "create", "--title", "Begun later"]);
    await next.goto(origin);
    await next
      .getByRole("main")
      .getByRole("link", { name: /Begun later/ })
      .waitFor();
    checked();
  });
});
