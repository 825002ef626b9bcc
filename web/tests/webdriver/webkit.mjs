// WebKitGTK: Debian's MiniBrowser on a screen in memory, by WebKitWebDriver.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ELEMENT } from "./page.mjs";

/** WebKitGTK loses a click at a place, or is late with it, on a busy machine. */
const CLICK = `
  const [element] = arguments;
  element.scrollIntoView({ block: "nearest", inline: "nearest" });
  const [box] = element.getClientRects();
  if (!box) throw new Error("not interactable");
  const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  if (!element.contains(hit)) throw new Error(\`intercepted by \${hit?.outerHTML.slice(0, 120)}\`);
  element.focus();
  element.click();
`;
const COMMANDS = {
  navigate: () => "url",
  refresh: () => "refresh",
  run: () => "execute/sync",
  wait: () => "execute/async",
  type: ({ id }) => `element/${id}/value`,
  act: () => "actions",
  size: () => "window/rect",
};

/** Debian keeps the browser next to the library. */
function miniBrowser() {
  const [folder] = readdirSync("/usr/lib", { recursive: false }).filter((name) => name.endsWith("-linux-gnu"));
  const [library] = readdirSync(join("/usr/lib", folder))
    .filter((name) => /^webkit2gtk-4/.test(name))
    .sort();
  return join("/usr/lib", folder, library, "MiniBrowser");
}

/** A port that is free now. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

/** Starts the driver. Another program can take its port first: then it ends, and gets another one. */
async function startDriver(env) {
  for (let tries = 0; tries < 5; tries++) {
    const port = await freePort();
    const driver = spawn("WebKitWebDriver", [`--port=${port}`], { env, stdio: "ignore", detached: true });
    const http = async (method, path, body) => {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method, ...(body && { body: JSON.stringify(body) }) });
      const { value } = await answer.json();
      if (value?.error) throw new Error(`${value.error}: ${value.message}`);
      return value;
    };
    while (driver.exitCode === null) {
      const isReady = await http("GET", "/status").then(
        (value) => value?.ready === true,
        () => false,
      );
      if (isReady && driver.exitCode === null) return { driver, http };
      await new Promise((later) => setTimeout(later, 50));
    }
  }
  throw new Error("WebKitWebDriver does not start");
}

/** Starts a screen, the driver and the browser. `soon`: so long a script may take, in milliseconds. */
export async function webkit(soon) {
  const home = await mkdtemp(join(tmpdir(), "ensemble-webkit-"));
  const screen = spawn("Xvfb", ["-displayfd", "3", "-screen", "0", "1600x1200x24", "-nolisten", "tcp"], {
    stdio: ["ignore", "ignore", "ignore", "pipe"],
  });
  const [number] = await once(screen.stdio[3], "data");
  const env = {
    ...process.env,
    HOME: home,
    XDG_RUNTIME_DIR: home,
    DISPLAY: `:${String(number).trim()}`,
    NO_AT_BRIDGE: "1",
    LIBGL_ALWAYS_SOFTWARE: "1",
  };
  const { driver, http } = await startDriver(env);
  // Dark by the browser's own setting; the others are light and dark.
  const args = ["--automation", "--dark-mode"];
  const { sessionId } = await http("POST", "/session", {
    capabilities: {
      alwaysMatch: { timeouts: { script: soon, pageLoad: soon }, "webkitgtk:browserOptions": { binary: miniBrowser(), args } },
    },
  });
  const call = (command, parameters) => {
    if (command === "picture") return http("GET", `/session/${sessionId}/screenshot`);
    if (command === "click") return call("run", { script: CLICK, args: [{ [ELEMENT]: parameters.id }] });
    return http("POST", `/session/${sessionId}/${COMMANDS[command](parameters)}`, parameters);
  };
  return {
    faults: [],
    call,
    close: async () => {
      await http("DELETE", `/session/${sessionId}`).catch(() => undefined);
      const over = [once(driver, "exit"), once(screen, "exit")];
      // The driver leads the group of the browser's processes.
      process.kill(-driver.pid, "SIGKILL");
      screen.kill();
      await Promise.all(over);
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
