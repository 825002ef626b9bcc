// The narrowest phones: the head says what the session is, everything is in reach, and a finger hits it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, pictures, tooSmall } from "../browser.mjs";
import { shown, visitor } from "./shared.mjs";

const SIZES = [
  { width: 320, height: 640 },
  { width: 360, height: 740 },
  { width: 390, height: 844 },
];
const TITLE = "Mend the limiter that refuses the first request after a restart";
const modes = ["ask", "edit", "plan"].map((id) => ({ id, name: id }));
const models = [
  { id: "sonnet", name: "Sonnet 4.5" },
  { id: "opus", name: "Opus 4.1 with a long name" },
];
const state = (phase) => ({
  type: "state",
  phase,
  agent: "claude",
  mode: "ask",
  modes,
  models,
  model: "opus",
  steers: true,
  directory: "/home/ann/work/ensemble",
  branch: "mend-limits",
  context: { used: 48_000, size: 200_000 },
  costUsd: 0.184,
  keyEpoch: 1,
});
const text = "Run this:\n\n```sh\ncargo test limits\n```\n\nThen look.";
const said = { type: "text", turnId: "t", part: 0, text };
const link = {
  address: "https://ensemble.example/share/token#v1.secret",
  expiresAt: undefined,
  maxUses: 10,
  uses: 1,
  isOld: false,
};
const isInside = ({ width, height }, box) =>
  box.x >= 0 && box.y >= 0 && box.x + box.width <= width + 0.5 && box.y + box.height <= height + 0.5;

describe("a narrow phone", { timeout: 10 * 60_000 }, () => {
  test("the title has the width of the head, up to two lines of it, and every control is in sight", async () => {
    for (const viewport of SIZES) {
      const { page, context, checked } = await shown(
        { bodies: [state("waiting"), said], title: TITLE, link },
        { viewport, hasTouch: true },
      );
      const title = page.getByRole("heading", { level: 1 });
      const { width, height } = await title.boundingBox();
      assert.ok(width > viewport.width - 80, `${width} px of ${viewport.width}`);
      const line = await title.evaluate((one) => Number.parseFloat(getComputedStyle(one).lineHeight));
      assert.ok(height > 1.5 * line && height < 2.5 * line, `${height} px, lines of ${line}`);
      const bar = ["Add files", "Interrupt"].map((name) => page.getByRole("button", { name, exact: true }));
      const picks = ["Mode", "Model"].map((name) => page.getByRole("combobox", { name, exact: true }));
      const head = [
        page.getByRole("link", { name: "Back to all sessions" }),
        ...["Public", "Share", "Details"].map((name) => page.getByRole("button", { name })),
      ];
      for (const one of [...head, ...bar, ...picks, page.locator(".phase")]) {
        const box = await one.boundingBox();
        assert.ok(isInside(viewport, box), `${one}: ${JSON.stringify(box)} in ${viewport.width}`);
        const cut = await one.evaluate((found) => found.scrollWidth - found.clientWidth);
        assert.ok(cut <= 1 || one === picks[1], `${one} is cut by ${cut} px`);
      }
      const { width: ofModel } = await picks[1].boundingBox();
      assert.ok(ofModel > 75, `enough of the model's name: ${ofModel} px of ${viewport.width}`);
      await page.getByRole("button", { name: "Details" }).click();
      for (const fact of ["48,000 of 200,000 tokens", "$0.18"])
        await page.getByRole("dialog").getByText(fact, { exact: true }).waitFor();
      checked();
      await context.close();
    }
  });

  test("whatever is tapped has 44 pixels on each side", async () => {
    const session = { bodies: [state("waiting"), said], title: TITLE, link };
    const asks = {
      bodies: [
        state("waiting"),
        said,
        {
          type: "permission",
          requestId: "r1",
          title: "Run a command",
          detail: "touch a",
          options: [
            { optionId: "yes", name: "Allow once", kind: "allow_once" },
            { optionId: "no", name: "Reject", kind: "reject_once" },
          ],
        },
      ],
    };
    const row = {
      id: "s",
      ref: "s",
      ownerId: "me",
      title: TITLE,
      attention: "none",
      open: 0,
      online: true,
      thinking: true,
      hosted: true,
      accessLevel: "owner",
      updatedAt: "2026-11-23T17:02:00Z",
    };
    const home = { home: { rows: [row] } };
    const one = await visitor({ viewport: SIZES[0], hasTouch: true });
    const { page } = one;
    const check = async (name) => assert.deepEqual(await tooSmall(page), [], name);
    for (const [name, contents] of Object.entries({ session, asks, home })) {
      await one.show(contents);
      assert.ok(await page.evaluate(() => matchMedia("(pointer: coarse)").matches));
      await check(name);
      await accessible(page, `${name} under a finger`);
      await pictures(page, `narrow-${name}`);
    }
    await one.show(session);
    for (const name of ["Share", "Details"]) {
      await page.getByRole("button", { name }).click();
      await check(name);
      await page.keyboard.press("Escape");
    }
    await one.show(undefined);
    await check("a session with all that there is");
    one.checked();
    await one.context.close();
  });
});
