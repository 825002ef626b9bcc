// A person without an account opens an invitation, and reads the session. `crates/cli/tests/stories/invited.rs` runs this, with the
// address in INVITE.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";

const address = process.env.INVITE;
const { origin } = new URL(address);

test("an invitation leads from its address into the session", { timeout: 10 * 60_000 }, async () => {
  const browser = await launch();
  try {
    const { page, context, checked } = await person(browser, origin);
    const signedIn = [];
    context.on("request", (request) => {
      if (new URL(request.url()).pathname === "/v1/auth") signedIn.push(request.url());
    });
    await page.goto(address);
    await page.getByRole("heading", { name: "Join a session" }).waitFor();
    assert.equal(page.url(), `${origin}/join`, "the secret does not stay in the address");
    await accessible(page, "an invitation");
    await pictures(page, "an invitation");
    assert.deepEqual(signedIn, [], "opening it does nothing: programs open links, too");
    await page.getByLabel("Your name").fill("Bob");
    await page.getByRole("button", { name: "Join", exact: true }).click();
    await page.getByText("Hello, Bob").waitFor();
    assert.match(page.url(), /\/sessions\//);
    await page.reload();
    await page.getByRole("list", { name: "Recovery words" }).waitFor();
    checked();
    // It was used.
    const late = await person(browser, origin);
    await late.page.goto(address);
    await late.page.getByLabel("Your name").fill("Eve");
    await late.page.getByRole("button", { name: "Join", exact: true }).click();
    await late.page.getByRole("alert").getByText("has used this invitation already").waitFor();
  } finally {
    await browser.close();
  }
});
