// The command that npm installs, with small programs in the place of ours.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { createInterface } from "node:readline";
import { executable, folder, nodes, platformPackage, removeFolders, repository, run } from "./releases.mjs";

after(removeFolders);

/** The command with a program in the place of ours. */
function shim(program) {
  const modules = join(folder("a b-"), "node_modules");
  const [own, platform] = ["@example/ensemble", platformPackage].map((name) => join(modules, name));
  mkdirSync(own, { recursive: true });
  mkdirSync(join(platform, "bin"), { recursive: true });
  copyFileSync(join(repository, "deploy/release/npm/ensemble.js"), join(own, "ensemble.js"));
  const about = { name: "@example/ensemble", optionalDependencies: { [platformPackage]: "1.0.0" }, config: { glibc: "2.36" } };
  writeFileSync(join(own, "package.json"), JSON.stringify(about));
  writeFileSync(join(platform, "package.json"), "{}");
  executable(join(platform, "bin/ensemble"), program);
  return join(own, "ensemble.js");
}

/** Says its process and each signal, and ends with 7 at the third. */
const listening = `#!/usr/bin/env node
let count = 0;
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"]) {
  process.on(signal, () => { console.log(signal); if (++count === 3) process.exit(7); });
}
console.log(JSON.stringify([process.pid, ...process.argv.slice(2)]));
setTimeout(() => {}, 30000);
`;

for (const node of nodes) {
  test(`arguments, signals and the exit code pass through ${node}`, async () => {
    const becomes = (await run(node, ["-p", "!!process.execve"])).out.trim() === "true";
    const words = ["do", "a b", "", "--", "$x"];
    // Without a terminal nothing but this test sends signals.
    const child = spawn(node, [shim(listening), ...words], { stdio: ["ignore", "pipe", "inherit"], detached: true });
    const ended = new Promise((done) => child.on("exit", (code, signal) => done([code, signal])));
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const [pid, ...seen] = JSON.parse((await lines.next()).value);
    assert.deepEqual(seen, words);
    assert.equal(pid === child.pid, becomes);
    for (const signal of ["SIGTERM", "SIGUSR2", "SIGHUP"]) {
      child.kill(signal);
      assert.equal((await lines.next()).value, signal);
    }
    assert.deepEqual(await ended, [7, null]);
  });

  test(`a program that a signal ends is seen so through ${node}`, async () => {
    for (const signal of ["SIGTERM", "SIGKILL", "SIGINT"]) {
      const child = spawn(node, [shim(`#!/bin/sh\nkill -${signal.slice(3)} $$\n`)], { stdio: "ignore", detached: true });
      const [code, by] = await new Promise((done) => child.on("exit", (code, by) => done([code, by])));
      assert.ok(by === signal || code === 128 + constants.signals[signal], `${signal}: ${code} ${by}`);
    }
  });
}

test("Ctrl-C of a terminal reaches the program once", async () => {
  const program = `#!/usr/bin/env node
let count = 0;
process.on("SIGINT", () => console.log("interrupted", ++count));
process.stdin.on("data", (data) => String(data).includes("end") ? process.exit(10 + count) : console.log("typed"));
console.log("ready");
`;
  // A second Ctrl-C would be counted before the two lines that are typed after the first.
  const typist = `
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
signal.alarm(30)
def until(text):
    seen = b""
    while text not in seen: seen += os.read(fd, 4096)
until(b"ready"); os.write(fd, b"\\x03"); until(b"interrupted"); os.write(fd, b"line\\n"); until(b"typed"); os.write(fd, b"end\\n")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`;
  for (const node of nodes) {
    const { code, err } = await run("python3", ["-c", typist, node, shim(program)]);
    assert.equal(code, 11, err);
  }
});

test("where no program can run it says so and what to do", { skip: process.platform !== "linux" }, async () => {
  const command = shim("#!/bin/sh\n");
  for (const [double, says] of [
    ["Object.defineProperty(process, 'platform', { value: 'win32' })", /needs WSL 2. Type `wsl --install`/],
    ["Object.defineProperty(process, 'arch', { value: 'riscv64' })", /no program is made for (linux|darwin) on riscv64/],
    ["process.report.getReport = () => ({ header: {} })", /another C library \(Alpine has musl\)/],
    ["process.report.getReport = () => ({ header: { glibcVersionRuntime: '2.9' } })", /glibc 2.36 or newer .* has 2.9/],
  ]) {
    const before = join(folder(), "double.js");
    writeFileSync(before, double);
    const { code, err } = await run(process.execPath, ["--require", before, command]);
    assert.equal(code, 1);
    assert.match(err, says);
    assert.equal(err.trim().split("\n").length, 1);
  }
});
