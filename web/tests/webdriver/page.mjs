// A page of a browser that speaks WebDriver, with the part of Playwright's interface that the stories use.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { find, wait } from "./find.mjs";

/** The name under which WebDriver gives an element. */
export const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";
const KEYS = {
  Backspace: "\uE003",
  Tab: "\uE004",
  Enter: "\uE007",
  Escape: "\uE00C",
  Control: "\uE009",
  End: "\uE010",
  Home: "\uE011",
};
/** An element that has the same place for so long stands still. */
const STILL_MS = 100;
/** So long the page itself waits before this end looks whether time is over, in milliseconds. */
const TURN_MS = 2_000;
/** The page was drawn again, or something lay over the element, so nothing was done: it is looked for again. */
const UNDONE = /stale element|no such element|intercepted|not interactable|invalid element state/;
/** The page was left meanwhile. */
const LEFT = /before the unload|no such frame|javascript error|detached|unknown error/;
const isAgain = ({ message }) => UNDONE.test(message) || LEFT.test(message);

const pattern = (wanted, isExact = false) =>
  wanted === undefined
    ? undefined
    : wanted instanceof RegExp
      ? { source: wanted.source, flags: wanted.flags }
      : { text: wanted, isExact };

class Finder {
  constructor(page, steps) {
    this.page = page;
    this.steps = steps;
  }

  #more(step) {
    return new Locator(this.page, [...this.steps, step]);
  }

  getByRole(role, { name, exact } = {}) {
    return this.#more({ role, name: pattern(name, exact) });
  }

  getByLabel(text, { exact } = {}) {
    return this.#more({ label: pattern(text, exact) });
  }

  getByText(text, { exact } = {}) {
    return this.#more({ text: pattern(text, exact) });
  }

  locator(css, { hasText } = {}) {
    return this.#more({ css, hasText: pattern(hasText) });
  }

  filter({ hasText }) {
    return this.#more({ hasText: pattern(hasText) });
  }

  first() {
    return this.#more({ at: 0 });
  }

  last() {
    return this.#more({ at: -1 });
  }
}

class Locator extends Finder {
  waitFor({ state = "visible", timeout } = {}) {
    return this.page.waitFor(this.steps, state, timeout);
  }

  #act(run) {
    return this.page.act(this.steps, run);
  }

  async click() {
    await this.#act(async (element) => {
      await this.page.still(element);
      await this.page.once("click", { id: element });
    });
  }

  async fill(text) {
    await this.#act(async (element) => {
      await this.page.run("arguments[0].focus(); arguments[0].select();", [{ [ELEMENT]: element }]);
      await this.page.session.call("type", { id: element, text: text === "" ? KEYS.Backspace : text });
    });
  }

  async press(key) {
    await this.#act((element) => this.page.once("type", { id: element, text: KEYS[key] ?? key }));
  }

  #read(script) {
    return this.#act((element) => this.page.run(`return ${script}`, [{ [ELEMENT]: element }]));
  }

  innerText() {
    return this.#read("arguments[0].innerText");
  }

  inputValue() {
    return this.#read("arguments[0].value");
  }

  isDisabled() {
    return this.#read("arguments[0].disabled");
  }

  allInnerTexts() {
    return this.page.run(`return (${find})(arguments[0]).map((one) => one.innerText);`, [this.steps]);
  }

  count() {
    return this.page.run(`return (${find})(arguments[0]).length;`, [this.steps]);
  }
}

export class Page extends Finder {
  /** `soon`: so long is anything waited for, in milliseconds. */
  constructor(session, soon) {
    super(undefined, []);
    this.page = this;
    this.session = session;
    this.soon = soon;
    this.keyboard = { press: (keys) => this.#press(keys) };
  }

  async goto(url) {
    await this.#collect();
    await this.session.call("navigate", { url });
    await this.#listen();
  }

  async reload() {
    await this.#collect();
    await this.session.call("refresh", {});
    await this.#listen();
  }

  /** From when a page is loaded: WebDriver runs nothing before. */
  async #listen() {
    await this.run(`
      window.__faults = [];
      const note = (what) => window.__faults.push(what);
      // A size that changed while it was looked at comes with the next frame: that is no fault.
      addEventListener("error", (event) => /^ResizeObserver loop/.test(event.message) || note(\`exception: \${event.message} \${event.error?.stack}\`));
      addEventListener("unhandledrejection", (event) => note(\`rejection: \${event.reason?.stack ?? event.reason}\`));
      addEventListener("securitypolicyviolation", (event) => note(\`policy: \${event.violatedDirective} \${event.blockedURI}\`));
    `);
  }

  async #collect() {
    this.session.faults.push(...(await this.run("return (window.__faults ?? []).splice(0);")));
  }

  /** Fails when the page did what it must not. */
  async checked() {
    await this.#collect();
    assert.deepEqual(this.session.faults, []);
  }

  async bringToFront() {}

  /** A script of statements, in the page. */
  run(script, args = []) {
    return this.session.call("run", { script, args });
  }

  async evaluate(what, ...args) {
    if (typeof what === "string") return this.run(what);
    const script = `
      const done = arguments[arguments.length - 1];
      (async () => (${what})(...[...arguments].slice(0, -1)))().then((value) => done({ value }), (error) => done({ error: String(error) }));
    `;
    const { value, error } = await this.session.call("wait", { script, args });
    if (error !== undefined) throw new Error(error);
    return value;
  }

  viewportSize() {
    return this.run("return { width: innerWidth, height: innerHeight };");
  }

  /** As near as the browser's window can be made to it. */
  async setViewportSize({ width, height }) {
    const frame = await this.run("return { width: outerWidth - innerWidth, height: outerHeight - innerHeight };");
    await this.session.call("size", { x: 0, y: 0, width: width + frame.width, height: height + frame.height });
  }

  async emulateMedia({ colorScheme }) {
    await this.session.setDark?.(colorScheme === "dark");
  }

  async screenshot({ path }) {
    await writeFile(path, Buffer.from(await this.session.call("picture", {}), "base64"));
  }

  async #press(keys) {
    const all = keys.split("+").map((key) => KEYS[key] ?? key);
    const actions = [
      ...all.map((value) => ({ type: "keyDown", value })),
      ...all.reverse().map((value) => ({ type: "keyUp", value })),
    ];
    await this.session.call("act", { actions: [{ type: "key", id: "keys", actions }] });
  }

  async waitFor(steps, state, timeout = this.soon) {
    const script = `const find = ${find}; (${wait})(...arguments);`;
    for (const end = performance.now() + timeout; performance.now() < end;) {
      try {
        const got = await this.session.call("wait", {
          script,
          args: [steps, state, Math.min(TURN_MS, end - performance.now())],
        });
        if (got) return got.found;
      } catch (error) {
        if (!isAgain(error)) throw error;
      }
    }
    throw new Error(
      `not ${state} within ${timeout} ms: ${JSON.stringify(steps)}\n${await this.run("return document.body.innerText.slice(0, 3000);").catch(() => "")}`,
    );
  }

  /** Waits until an element takes a click, and does not move any more: a click goes to a place. */
  async still(element) {
    const script = `
      const [element, done] = arguments;
      const place = () => JSON.stringify(element.getBoundingClientRect());
      const isOff = () => element.isConnected && (element.disabled || element.getAttribute("aria-disabled") === "true");
      const look = (before) => setTimeout(() => (place() === before && !isOff() ? done(true) : look(place())), ${STILL_MS});
      look(place());
    `;
    await this.session.call("wait", { script, args: [{ [ELEMENT]: element }] });
  }

  /** A command that must not be done twice. Where the page was left meanwhile, it was done. */
  async once(command, parameters) {
    await this.session.call(command, parameters).catch((error) => {
      if (UNDONE.test(error.message) || !LEFT.test(error.message)) throw error;
    });
  }

  /** Does something with the one element that the steps lead to. */
  async act(steps, run) {
    for (const end = performance.now() + this.soon; ;) {
      const found = await this.waitFor(steps, "visible", Math.max(1, end - performance.now()));
      if (found.length > 1) throw new Error(`${found.length} elements in place of one: ${JSON.stringify(steps)}`);
      try {
        return await run(found[0][ELEMENT]);
      } catch (error) {
        if (!isAgain(error) || performance.now() > end) throw error;
      }
    }
  }
}
