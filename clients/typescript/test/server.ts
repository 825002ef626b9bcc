// The real server and the real command line, for tests: `ensemble up` on a free port with a folder of its own.

import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** What starts the product. `make test` has built it. */
const PROGRAM = process.env["ENSEMBLE"] ?? fileURLToPath(new URL("../../../../target/debug/ensemble", import.meta.url));
const WITHIN = 120_000;

export interface Server {
  url: string;
  /** The folder of a home. That of the server's own account is `up`. */
  home(name: string): string;
  /** Begins a command of the command line that a test talks with. */
  begin(home: string, ...args: string[]): ChildProcessWithoutNullStreams;
  /** Runs the command line with a home of its own. */
  ensemble(home: string, ...args: string[]): Promise<string>;
  stop(): Promise<void>;
}

/** @param runner The runner's configuration. Without one no runner is started. */
export async function startServer({ runner, env: more }: { runner?: object; env?: NodeJS.ProcessEnv } = {}): Promise<Server> {
  assert.ok(existsSync(PROGRAM), `${PROGRAM} is not there: run \`cargo build -p ensemble-cli\`, or name it in ENSEMBLE`);
  const folder = await mkdtemp(join(tmpdir(), "ensemble-client-"));
  const env = (home: string): NodeJS.ProcessEnv => ({
    PATH: process.env["PATH"],
    HOME: join(folder, home),
    ENSEMBLE_HOME: join(folder, home),
  });
  const args = ["up", "--json", "--listen", "127.0.0.1:0", "--data", join(folder, "data")];
  if (runner) {
    await mkdir(join(folder, "up", "work"), { recursive: true });
    await writeFile(join(folder, "up", "runner.yaml"), JSON.stringify(runner));
  } else {
    args.push("--no-runner");
  }
  const child = spawn(PROGRAM, args, { env: { ...env("up"), ...more }, stdio: ["ignore", "pipe", "pipe"] });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors = (errors + text).slice(-10_000)));
  // A test that takes too long is ended from outside, and its server with it.
  const end = (): never => {
    child.kill("SIGKILL");
    process.exit(1);
  };
  process.once("SIGTERM", end);
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async (): Promise<void> => {
    process.off("SIGTERM", end);
    child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), 60_000);
    await ended;
    clearTimeout(late);
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  const up = new Promise<string>((resolve, reject) => {
    let output = "";
    const timer = setTimeout(() => reject(new Error(`\`ensemble up\` is not up: ${errors}`)), WITHIN);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      const line = output.split("\n").find((one) => one.startsWith("{"));
      if (line === undefined || !output.includes("\n")) return;
      clearTimeout(timer);
      resolve((JSON.parse(line) as { url: string }).url);
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      reject(new Error(`\`ensemble up\` has ended with ${code}: ${errors}`));
    });
  });
  try {
    const url = await up;
    const ensemble = async (home: string, ...given: string[]): Promise<string> => {
      const options = { env: { ...env(home), ENSEMBLE_SERVER: url }, timeout: WITHIN, maxBuffer: 1 << 24 };
      return (await promisify(execFile)(PROGRAM, given, options)).stdout;
    };
    const begin = (home: string, ...given: string[]): ChildProcessWithoutNullStreams =>
      spawn(PROGRAM, given, { env: { ...env(home), ENSEMBLE_SERVER: url } });
    return { url, home: (name) => join(folder, name), begin, ensemble, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
