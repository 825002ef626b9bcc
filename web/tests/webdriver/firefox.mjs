// Firefox ESR by Marionette, its own socket for tests. It takes the commands of WebDriver, which Debian's package has no program for.
// (https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html)
import { spawn } from "node:child_process";
import { on, once } from "node:events";
import { watch } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const NAMES = {
  navigate: "WebDriver:Navigate",
  refresh: "WebDriver:Refresh",
  run: "WebDriver:ExecuteScript",
  wait: "WebDriver:ExecuteAsyncScript",
  click: "WebDriver:ElementClick",
  type: "WebDriver:ElementSendKeys",
  act: "WebDriver:PerformActions",
  size: "WebDriver:SetWindowRect",
  picture: "WebDriver:TakeScreenshot",
};
const PREFERENCES = {
  "marionette.port": 0,
  "browser.shell.checkDefaultBrowser": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "network.proxy.type": 0,
  // What a page logs and throws comes to standard output, where `faults` reads it.
  "devtools.console.stdout.content": true,
  "browser.dom.window.dump.enabled": true,
};
/** What a page logs or throws. A part of Firefox logs that it does not reach Mozilla. */
const FAULT = /^console\.error: (?!RSLoader)|^JavaScript error: http/;
const SCHEME = "layout.css.prefers-color-scheme.content-override";

/** The messages of Marionette: `[kind, id, what, how]` in JSON, each with its length in bytes in front. */
class Marionette {
  #socket;
  #read = Buffer.alloc(0);
  #last = 0;
  #waiting = new Map();

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (piece) => this.#take(piece));
    socket.on("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("Firefox has ended"));
    });
  }

  #take(piece) {
    this.#read = Buffer.concat([this.#read, piece]);
    for (;;) {
      const colon = this.#read.indexOf(":");
      const end = colon + 1 + Number(this.#read.subarray(0, colon));
      if (colon < 0 || this.#read.length < end) return;
      const message = JSON.parse(this.#read.subarray(colon + 1, end));
      this.#read = this.#read.subarray(end);
      if (!Array.isArray(message)) continue;
      const [, id, error, result] = message;
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) reject(new Error(`${error.error}: ${error.message}`));
      else resolve(result);
    }
  }

  send(name, parameters) {
    const id = ++this.#last;
    const text = JSON.stringify([0, id, name, parameters]);
    this.#socket.write(`${Buffer.byteLength(text)}:${text}`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }
}

/** Starts Firefox with a profile of its own. `soon`: so long a script may take, in milliseconds. */
export async function firefox(soon) {
  const profile = await mkdtemp(join(tmpdir(), "ensemble-firefox-"));
  await writeFile(
    join(profile, "user.js"),
    Object.entries(PREFERENCES)
      .map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`)
      .join(""),
  );
  const child = spawn(
    process.env.FIREFOX ?? "firefox-esr",
    ["--headless", "--no-remote", "--remote-allow-system-access", "--marionette", "--profile", profile],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, HOME: profile } },
  );
  const faults = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (piece) =>
      faults.push(
        ...String(piece)
          .split("\n")
          .filter((line) => FAULT.test(line)),
      ),
    );
  }
  const ended = once(child, "exit");
  const port = await portOf(profile, ended);
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  const marionette = new Marionette(socket);
  await marionette.send("WebDriver:NewSession", {
    capabilities: { alwaysMatch: { timeouts: { script: soon, pageLoad: soon } } },
  });
  return {
    faults,
    call: async (command, parameters) => {
      const result = await marionette.send(NAMES[command], parameters);
      return result && "value" in result ? result.value : result;
    },
    setDark: async (isDark) => {
      await marionette.send("Marionette:SetContext", { value: "chrome" });
      await marionette.send("WebDriver:ExecuteScript", {
        script: `Services.prefs.setIntPref("${SCHEME}", ${isDark ? 0 : 1});`,
        args: [],
      });
      await marionette.send("Marionette:SetContext", { value: "content" });
    },
    close: async () => {
      child.kill("SIGKILL");
      await ended;
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** The port that Firefox chose: it writes it into its profile. */
async function portOf(profile, ended) {
  const watcher = watch(profile);
  void ended.then(() => watcher.close());
  const changes = on(watcher, "change", { close: ["close"] });
  try {
    // It may be there already.
    for (let isOver = false; !isOver; isOver = (await changes.next()).done) {
      const port = Number(await readFile(join(profile, "MarionetteActivePort"), "utf8").catch(() => ""));
      if (port > 0) return port;
    }
  } finally {
    watcher.close();
  }
  throw new Error("Firefox did not say its port");
}
