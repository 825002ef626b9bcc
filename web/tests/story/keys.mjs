// A person who has a keyboard and a screen reader: the focus moves by Tab, and what it is on is read from the accessibility tree.
import assert from "node:assert/strict";
import { SOON } from "../browser.mjs";

/** What the focus is on, as a screen reader says it, and whether a person who sees can tell where it is. */
export async function focused(page) {
  const cdp = await page.context().newCDPSession(page);
  try {
    const { result } = await cdp.send("Runtime.evaluate", { expression: "document.activeElement" });
    const { nodes } = await cdp.send("Accessibility.getPartialAXTree", { objectId: result.objectId, fetchRelatives: false });
    const [node] = nodes;
    const isShown = await page.evaluate(() => {
      const one = document.activeElement;
      return one !== null && (getComputedStyle(one).outlineStyle !== "none" || one.matches("textarea, input, select"));
    });
    return { role: node?.role?.value ?? "", name: node?.name?.value ?? "", isShown };
  } finally {
    await cdp.detach();
  }
}

/** Moves the focus on by Tab until it is on what has this role and name. */
export async function tabTo(page, role, name) {
  const passed = [];
  for (const end = performance.now() + SOON; performance.now() < end;) {
    await page.keyboard.press("Tab");
    const at = await focused(page);
    passed.push(`${at.role} ${at.name}`);
    if (at.role !== role || !name.test(at.name)) continue;
    assert.ok(at.isShown, `the focus is not visible: ${at.name}`);
    return;
  }
  assert.fail(`the focus does not come to ${role} ${name}: ${passed.slice(0, 80).join(" · ")}`);
}

/** The same, and presses it. */
export async function press(page, role, name, key = "Enter") {
  const isOn = (at) => at.role === role && name.test(at.name);
  // What is drawn again meanwhile loses the focus.
  do {
    await tabTo(page, role, name);
    // Buttons of a request take nothing just after they appeared.
    await page.waitForFunction(() => document.activeElement?.getAttribute("aria-disabled") !== "true");
  } while (!isOn(await focused(page)));
  await page.keyboard.press(key);
}

/** Writes into a field. */
export async function write(page, name, text) {
  await tabTo(page, "textbox", name);
  await page.keyboard.press("Control+a");
  await page.keyboard.type(text);
}

/** Goes to a screen by the palette. */
export async function jump(page, words) {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Go to" }).waitFor();
  await page.keyboard.type(words);
  await page
    .getByRole("option", { name: new RegExp(words, "i") })
    .first()
    .waitFor();
  await page.keyboard.press("Enter");
}
