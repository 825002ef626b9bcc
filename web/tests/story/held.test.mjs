// A person's page at an address that holds live text back, as some tunnels do.
//
// `crates/cli/tests/stories/page.rs` runs this. ENSEMBLE_URL is the real server. The page is at BETWEEN, where `lying.mjs` listens. The
// person's terminal does not pass through it.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { accessible, launch, person } from "../browser.mjs";
import { lying } from "./lying.mjs";
import { signUp, steps } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const server = new URL(process.env.ENSEMBLE_URL).origin;
const origin = new URL(process.env.BETWEEN).origin;

const create = async (title) => JSON.parse(await ensemble(["session", "create", "--title", title, "--json"])).session.id;

describe("the page at an address that holds streams back", { timeout: 25 * 60_000 }, () => {
  let browser, me, between, session, other;
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
  const line = () => me.page.getByRole("status").getByText("This address holds live text back", { exact: true });
  const isOpen = async () => {
    const wasLost = (await me.page.evaluate(() => globalThis.wasLost)) === true;
    // The page says so of a server that is slow, too.
    assert.ok(!wasLost || between.slowest() > 1_000, "the page said that it is cut off");
  };
  const listed = (title) => me.page.getByRole("main").getByRole("link", { name: title });
  const says = async (text) => {
    await ensemble(["session", "send", session, text]);
    await me.page.getByRole("log").getByText(text, { exact: true }).waitFor();
  };
  const reopen = async (methods) => {
    between.hold(methods);
    await me.page.goto("about:blank");
    await me.page.goto(`${origin}/sessions/${session}`);
    await me.page.evaluate(() => {
      const look = () => (globalThis.wasLost ||= document.querySelector(".offline:not(.plain)") !== null);
      new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    });
    await me.page.getByRole("log").getByText("the first words", { exact: true }).waitFor();
  };
  /** That the browser says so of requests that break is what the story is about. */
  const checked = () => {
    me.faults.splice(0, me.faults.length, ...me.faults.filter((fault) => !/^console: Failed to load resource/.test(fault)));
    me.checked();
  };

  step("where only GET is held back, what happens comes live", async () => {
    await signUp(me.page, origin, server);
    [session, other] = [await create("Held back"), await create("Something else")];
    await ensemble(["session", "send", session, "the first words"]);
    await reopen(["GET"]);
    await says("live by POST");
    await isOpen();
    assert.equal(await line().count(), 0);
    assert.ok(between.requests.includes(`POST /v3/sessions/${session}/messages/stream`), between.requests.join("\n"));
    checked();
  });

  step("where POST is, too, a message comes once, and the page says why it is late", async () => {
    await reopen(["GET", "POST"]);
    await line().waitFor();
    await isOpen();
    await says("asked for");
    await says("asked for again");
    for (const text of ["the first words", "live by POST", "asked for", "asked for again"])
      assert.equal(await me.page.getByRole("log").getByText(text, { exact: true }).count(), 1, text);
    await accessible(me.page, "an address that holds live text back");
    checked();
  });

  step("the list of sessions follows, and no session is asked for that is not open", async () => {
    await me.page.goto(origin);
    await line().waitFor();
    await listed(/Something else/).waitFor();
    between.requests.length = 0;
    const third = await create("A third one");
    await listed(/A third one/).waitFor();
    await ensemble(["session", "rename", other, "Another title"]);
    await listed(/Another title/).waitFor();
    const single = between.requests.filter((one) => one.endsWith(other) || one.endsWith(third));
    assert.deepEqual(single, []);
    assert.ok(between.requests.includes("GET /v1/sessions"));
    checked();
  });

  step("an address that holds nothing back any more has live streams after the next start of the page", async () => {
    await reopen([]);
    await says("live again");
    assert.equal(await line().count(), 0);
    checked();
  });
});
