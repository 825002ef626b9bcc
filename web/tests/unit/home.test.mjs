// What Home shows first: what this person can do, and nothing that is for others.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible } from "../browser.mjs";
import { shown } from "./shared.mjs";

const machine = {
  id: "m",
  ref: "m",
  name: "laptop",
  given: "laptop",
  system: undefined,
  lastActiveAt: undefined,
  offers: [],
  does: [],
};
const row = {
  id: "s",
  ref: "s",
  ownerId: "other",
  title: "Tidy up",
  attention: "permission",
  open: 1,
  online: true,
  thinking: true,
  ended: false,
  archived: false,
  hosted: true,
  updatedAt: "2026-11-23T17:02:00Z",
};

describe("home", { timeout: 10 * 60_000 }, () => {
  test("a request is for those who may answer it", async () => {
    for (const [accessLevel, isMine] of [
      ["view", false],
      ["edit", true],
      ["owner", true],
    ]) {
      const { page, context } = await shown({ home: { rows: [{ ...row, accessLevel }] } });
      const entry = page.getByRole("list").getByRole("link", { name: /Tidy up/ });
      await entry.getByText(isMine ? "Needs approval" : "Waits for an answer", { exact: true }).waitFor();
      assert.equal(await page.getByRole("heading", { name: "Needs you" }).count(), isMine ? 1 : 0, accessLevel);
      assert.equal((await page.title()).startsWith("(1) Home"), isMine, await page.title());
      await context.close();
    }
  });

  test("a machine that is ready is offered before there is a session", async () => {
    const { page, context } = await shown({ home: { machines: [{ ...machine, online: true }], role: "linked" } });
    await page.getByText("laptop is ready.").waitFor();
    assert.equal(await page.getByRole("link", { name: "New session" }).getAttribute("href"), "/start");
    assert.equal(await page.getByText("ensemble login").count(), 0);
    await accessible(page, "home with a machine");
    await context.close();
  });

  test("only a primary device is sent to Add a device", async () => {
    for (const [role, count] of [
      ["primary", 1],
      ["linked", 0],
    ]) {
      const { page, context } = await shown({ home: { machines: [{ ...machine, online: false }], role } });
      await page.getByText("ensemble login --link").waitFor();
      assert.equal(await page.getByRole("link", { name: "Settings, Add a device" }).count(), count);
      assert.equal(await page.getByText("from a primary device of yours").count(), 1 - count);
      await context.close();
    }
  });
});
