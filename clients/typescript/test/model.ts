// The stand-in of the agents' model, and the real agents that talk to it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = new URL("../../../../", import.meta.url);
const PROGRAMS = process.env["PROVIDER_PROGRAMS"] ?? fileURLToPath(new URL("tests/provider-clis/node_modules/.bin", root));
const PROGRAM = process.env["ENSEMBLE"] ?? fileURLToPath(new URL("target/debug/ensemble", root));

/** The address of the model, and how to end it. `MODEL_STAND_IN` names one that runs already. */
export async function startModel(): Promise<{ url: string; stop(): void }> {
  const running = process.env["MODEL_STAND_IN"];
  if (running !== undefined) return { url: running, stop: () => undefined };
  const child = spawn(join(dirname(PROGRAM), "ensemble-model-stand-in"), ["127.0.0.1:0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.once("error", reject);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      const found = /ANTHROPIC_BASE_URL=(\S+)/.exec(text)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  return { url, stop: () => void child.kill("SIGKILL") };
}

/** What lets the real claude talk to the model. */
export function claude(model: string): NodeJS.ProcessEnv {
  assert.ok(existsSync(join(PROGRAMS, "claude")), "The agents are not installed. Run `tests/provider-clis/install`.");
  return {
    PATH: [PROGRAMS, process.env["PATH"]].join(delimiter),
    ANTHROPIC_BASE_URL: model,
    ANTHROPIC_API_KEY: "stand-in",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_MAX_RETRIES: "1",
    DISABLE_TELEMETRY: "1",
  };
}
