// How soon the page is ready: release programs, Debian's Chromium, one machine. `make bench-page` runs it.
//
// ENSEMBLE is the program. ENSEMBLE_BENCH is the program of the benchmark: it plays `claude` and says many texts.
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const ROUNDS = 5;
const MESSAGES = 10_000;
const folder = await mkdtemp(join(tmpdir(), "ensemble-bench-page-"));
const home = (name) => ({ PATH: process.env.PATH, HOME: join(folder, name), ENSEMBLE_HOME: join(folder, name, "ensemble") });

async function makeHome(name) {
  await mkdir(join(folder, name, "ensemble"), { recursive: true });
  return home(name);
}

const up = spawn(process.env.ENSEMBLE, ["up", "--json", "--no-runner", "--listen", "127.0.0.1:0"], {
  env: await makeHome("server"),
  cwd: folder,
  stdio: ["ignore", "pipe", "ignore"],
});
const { value: line } = await createInterface({ input: up.stdout })[Symbol.asyncIterator]().next();
const origin = new URL(JSON.parse(line).url).origin;

const terminal = await makeHome("terminal");
Object.assign(process.env, terminal);
const claude = { program: process.env.ENSEMBLE_BENCH, env: { ENSEMBLE_BENCH_CLAUDE: "1" } };
await writeFile(
  join(terminal.ENSEMBLE_HOME, "runner.yaml"),
  JSON.stringify({ providers: { claude, codex: { enabled: false }, gemini: { enabled: false } } }),
);
// They read the environment when they are loaded.
const { launch, person } = await import("../browser.mjs");
const { signUp } = await import("../story/people.mjs");
const { ensemble } = await import("../story/terminal.mjs");

const median = (all) => all.toSorted((one, other) => one - other)[Math.floor(all.length / 2)];
let missed = 0;
function row(name, all, target) {
  const found = median(all);
  const isMet = found <= target;
  if (!isMet) missed += 1;
  console.log(
    `${name.padEnd(66)} ${found.toFixed(0).padStart(6)} ms  (${Math.min(...all).toFixed(0)} to ${Math.max(...all).toFixed(0)})  at most ${target}: ${isMet ? "met" : "missed"}`,
  );
}

/** Opens the address in a new page of the same person, and gives the milliseconds from there until it shows this. */
async function shows(context, address, wanted) {
  const page = await context.newPage();
  const begun = performance.now();
  await page.goto(address, { waitUntil: "commit" });
  await wanted(page).waitFor();
  const took = performance.now() - begun;
  await page.close();
  return took;
}

const browser = await launch();
let session;
try {
  // The browser of a new person has an empty cache and no account.
  const first = [];
  for (let round = 0; round < ROUNDS; round++) {
    const { context } = await person(browser, origin);
    first.push(await shows(context, origin, (page) => page.getByRole("button", { name: "Make an account" })));
    await context.close();
  }
  row("page: address opened for the first time → first screen", first, 1_000);

  const { context, page } = await person(browser, origin);
  await signUp(page, origin);
  session = await ensemble(["claude", "--title", "Many", "--detach", `many ${MESSAGES}`]);
  const shown = JSON.parse(await ensemble(["session", "show", session, "--json"])).session;
  const wanted = (one) => one.getByRole("log").getByText(`line ${MESSAGES}`, { exact: true });
  const address = `${origin}/sessions/${shown.ref}`;
  await page.goto(address);
  await wanted(page).waitFor();
  await page.goto("about:blank");
  const [homes, ends] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    homes.push(await shows(context, origin, (one) => one.getByRole("main").getByRole("link", { name: /Many/ })));
    ends.push(await shows(context, address, wanted));
  }
  row("page: address opened by a person who was here → their sessions", homes, 1_000);
  row(`page: a session of ${MESSAGES.toLocaleString("en")} messages opened → its end`, ends, 700);
} finally {
  if (session) await ensemble(["stop", session]).catch(() => undefined);
  // `ensemble claude` has begun a host in the background, which outlives it.
  const hosts = join(terminal.ENSEMBLE_HOME, "hosts");
  for (const host of await readdir(hosts).catch(() => []))
    process.kill(Number(await readFile(join(hosts, host, "pid"), "utf8")), "SIGTERM");
  await browser.close();
  up.kill("SIGTERM");
  await new Promise((ended) => up.once("exit", ended));
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
}
process.exitCode = missed > 0 ? 1 : 0;
