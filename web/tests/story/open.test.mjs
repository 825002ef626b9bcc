// From `ensemble open` to a session in this computer's browser, and the same browser once more.
//
// `crates/cli/tests/stories/page.rs` runs this.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";
import { steps } from "./people.mjs";
import { demo, ensemble, opens } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

describe("this computer's browser", { timeout: 25 * 60_000 }, () => {
  let browser, me, session;
  const asked = [];
  before(async () => {
    await ensemble(["login", "--server", origin, "--name", "Anna O\u2019Neill"]);
    session = await ensemble(["claude", "--title", "Shared", "--dir", "work", "--detach", "[[say from the machine]]"]);
    browser = await launch();
    me = await person(browser, origin);
    me.context.on("request", (request) => {
      if (request.method() === "POST" && /\/links\/[^/]+\/\w+$/.test(request.url())) asked.push(request.url());
    });
  });
  after(async () => {
    if (session) await ensemble(["stop", session]).catch(() => undefined);
    await browser?.close();
  });
  const step = steps();

  step("without an account the page says what to type, and no more", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    await page.getByText("This computer has an account. Type ensemble open.").waitFor();
    await accessible(page, "welcome, an account on this computer");
    await page.getByRole("button", { name: "Make an account" }).waitFor();
    await checked();
  });

  step("the browser asks, and is added by a click", async () => {
    const { page, checked } = me;
    const { file, finish } = await opens();
    await page.goto(file);
    await page.getByRole("heading", { name: "Add this browser to Anna O\u2019Neill\u2019s account?" }).waitFor();
    assert.equal(page.url(), `${origin}/link`, "the secret is in no address");
    await accessible(page, "link, this computer");
    await pictures(page, "open");
    assert.deepEqual(asked, [], "nothing is asked before the click");
    await page.getByRole("button", { name: "Add this browser" }).click();
    await page
      .getByRole("main")
      .getByRole("link", { name: /Shared/ })
      .click();
    await page.getByRole("log").getByText("from the machine", { exact: true }).first().waitFor();
    assert.match(await finish(), /Added .+ as a linked device/);
    assert.equal(asked.length, 1);
    await checked();
  });

  step("a browser that has an account goes to its home, and the link is ended", async () => {
    const { page, checked } = me;
    const { file, finish } = await opens();
    await page.goto(file);
    await page
      .getByRole("main")
      .getByRole("link", { name: /Shared/ })
      .waitFor();
    assert.match(await finish(), /has your account already/);
    assert.equal(page.url(), `${origin}/`);
    assert.match(asked[1], /\/refusal$/);
    await page.goto(`${origin}/settings`);
    await page.getByText("Every page that is ever served at that address can use them").waitFor();
    await checked();
  });

  step("a demo is answered on the page, and goes when its terminal leaves it", async () => {
    const { page, checked } = me;
    const leave = demo();
    await page.goto(origin);
    // Once it asks it stands in two lists.
    const link = page.getByRole("main").getByRole("link", { name: /Demo/ }).first();
    await link.click();
    await page
      .getByRole("region", { name: /The agent asks/ })
      .getByRole("button", { name: "Allow once" })
      .click();
    await page
      .getByRole("log")
      .getByText(/prints "passed: 2 \+ 3 is 5"/)
      .waitFor();
    assert.equal(await page.getByRole("button", { name: "Share" }).count(), 0);
    await page.goto(origin);
    await link.waitFor();
    await leave();
    await link.waitFor({ state: "detached" });
    await checked();
  });
});
