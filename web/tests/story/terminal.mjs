// The person's terminal: ENSEMBLE is the program, and the environment is that of the terminal.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { SOON } from "../browser.mjs";

/** Runs a command of the terminal, and gives what it prints. */
export async function ensemble(words, input = "") {
  const child = spawn(process.env.ENSEMBLE, words, { cwd: homedir(), stdio: ["pipe", "pipe", "pipe"], timeout: SOON });
  // A command that ends without reading breaks the pipe.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  const [out, err] = [[], []];
  child.stdout.on("data", (piece) => out.push(piece));
  child.stderr.on("data", (piece) => err.push(piece));
  const code = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  assert.equal(code, 0, `${words.join(" ")}: ${Buffer.concat(out)}${Buffer.concat(err)}`);
  return Buffer.concat(out).toString().trim();
}

/** Begins `ensemble link`: the address that it shows, and what types the digits and waits for its end. */
export async function links() {
  const child = spawn(process.env.ENSEMBLE, ["link"], { cwd: homedir(), timeout: SOON });
  let said = "";
  const ended = new Promise((resolve) => child.on("close", resolve));
  const address = new Promise((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (piece) => {
        said += piece;
        const found = /(https?:\S+\/link#\S+)\s/.exec(said);
        if (found) resolve(found[1]);
      });
  });
  const finish = async (digits) => {
    child.stdin.end(`${digits}\n`);
    assert.equal(await ended, 0, said);
  };
  return { address: await Promise.race([address, ended.then(() => assert.fail(said))]), finish };
}

/** Begins `ensemble open` in a terminal of a desktop: the file that the browser is to open, and what waits for the command's end. */
export async function opens() {
  const folder = await mkdtemp(join(tmpdir(), "desktop-"));
  const given = join(folder, "given");
  execFileSync("mkfifo", [given]);
  await writeFile(join(folder, "xdg-open"), `#!/bin/sh\nprintf %s "$1" > '${given}'\n`);
  await chmod(join(folder, "xdg-open"), 0o755);
  const env = { ...process.env, DISPLAY: ":9", PATH: `${folder}:${process.env.PATH}` };
  const child = spawn("script", ["-qefc", `'${process.env.ENSEMBLE}' open`, "/dev/null"], {
    cwd: homedir(),
    env,
    timeout: SOON,
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (said += piece));
  const ended = new Promise((resolve) => child.on("close", resolve));
  const file = await Promise.race([readFile(given, "utf8"), ended.then(() => assert.fail(said))]);
  const finish = async () => {
    assert.equal(await ended, 0, said);
    return said;
  };
  return { file, finish };
}

/** Begins `ensemble demo` in a terminal, and gives what leaves it. */
export function demo() {
  const child = spawn("script", ["-qefc", `stty columns 100 rows 30; '${process.env.ENSEMBLE}' demo`, "/dev/null"], {
    cwd: homedir(),
    timeout: SOON,
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (said += piece));
  const ended = new Promise((resolve) => child.on("close", resolve));
  return async () => {
    // Ctrl-D.
    child.stdin.write("\u0004");
    assert.equal(await ended, 0, said);
    assert.match(said, /The demo has ended/);
  };
}
