#!/usr/bin/env node
// Becomes the program of this platform, which an optional dependency of this package has. Where Node cannot do that (before 22.15), it starts
// the program with this terminal, passes signals on, and ends as it ends.
"use strict";
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const own = require("./package.json");
const name = `${own.name}-${process.platform}-${process.arch}`;

function stop(why) {
  fs.writeSync(2, `ensemble: ${why}\n`);
  process.exit(1);
}

/** Why no program of ours can run here. */
function unfit() {
  if (process.platform === "win32") {
    return "on Windows Ensemble needs WSL 2. Type `wsl --install` in PowerShell, and install this package in the Linux that it installs.";
  }
  if (!(name in own.optionalDependencies)) return `no program is made for ${process.platform} on ${process.arch}.`;
  if (process.platform !== "linux") return undefined;
  // Without it the report looks up the names of all connections.
  process.report.excludeNetwork = true;
  const { glibcVersionRuntime } = process.report.getReport().header;
  if (!glibcVersionRuntime) return "the program needs glibc, and this system has another C library (Alpine has musl).";
  const [have, need] = [glibcVersionRuntime, own.config.glibc].map((version) => version.split(".").map(Number));
  if (have[0] > need[0] || (have[0] === need[0] && have[1] >= need[1])) return undefined;
  return `the program needs glibc ${own.config.glibc} or newer (as in Debian 12), and this system has ${glibcVersionRuntime}.`;
}

function find() {
  const why = unfit();
  if (why) stop(why);
  try {
    const program = path.join(path.dirname(require.resolve(`${name}/package.json`)), "bin", "ensemble");
    fs.accessSync(program, fs.constants.X_OK);
    return program;
  } catch {
    return stop(`the package ${name} is missing. Install again, with optional dependencies: npm install --global --include=optional ${own.name}`);
  }
}

/** Whether Ctrl-C of a terminal comes to the program by itself. A second one could mean more to it. */
function hasTerminal() {
  try {
    fs.closeSync(fs.openSync("/dev/tty", "r"));
    return true;
  } catch {
    return false;
  }
}

function start(program, words) {
  const child = spawn(program, words, { stdio: "inherit" });
  child.on("error", (error) => stop(`${program} cannot be started: ${error.message}`));
  const passed = ["SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2"];
  const ofTerminal = ["SIGINT", "SIGQUIT"];
  for (const signal of passed) process.on(signal, () => child.kill(signal));
  for (const signal of ofTerminal) process.on(signal, () => hasTerminal() || child.kill(signal));
  child.on("exit", (code, signal) => {
    if (!signal) process.exit(code);
    process.removeAllListeners(signal);
    process.exitCode = 128 + os.constants.signals[signal];
    process.kill(process.pid, signal);
  });
}

const program = find();
const words = process.argv.slice(2);
if (process.execve) {
  process.execve(program, [program, ...words], process.env);
} else {
  start(program, words);
}
