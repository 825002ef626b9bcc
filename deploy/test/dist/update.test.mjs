// `ensemble update` of the program ENSEMBLE, or of PROGRAM, with releases on loopback.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, linkSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { executable, folder, publish, real, removeFolders, run, serve, target } from "./releases.mjs";

const source = process.env.ENSEMBLE ?? real;
const root = folder();
const home = folder();
let server, version, copy;
before(async () => {
  copy = join(folder(), "ensemble");
  copyFileSync(source, copy);
  version = (await run(copy, ["--version"])).out.trim().replace("ensemble ", "");
  await publish(root, "99.0.0");
  server = await serve(root);
});
after(async () => {
  await server?.close();
  removeFolders();
});

/** The program in a folder, installed in the way that its mark names. */
function installed(path, mark) {
  const program = join(folder(), path);
  mkdirSync(dirname(program), { recursive: true });
  linkSync(copy, program);
  if (mark) writeFileSync(join(dirname(program), ".ensemble-install"), `${mark}\n`);
  return program;
}
const update = (program, words = [], env = {}) =>
  run(program, ["update", ...words], {
    env: { HOME: home, PATH: process.env.PATH, TMPDIR: folder(), ENSEMBLE_RELEASES: server.url, ...env },
  });
const says = async (program) => (await run(program, ["--version"])).out;

test("what install.sh installed is replaced after the same checks", async () => {
  const program = installed("bin/ensemble", "install.sh");
  const seen = await update(program, ["--check"]);
  assert.equal(seen.out, `This is ${version}, and the newest version is 99.0.0. Type \`ensemble update\`.\n`);

  const archive = `/download/v99.0.0/ensemble-99.0.0-${target}.tar.gz`;
  server.answers.set(archive, (_, response) => response.end("x"));
  const broken = await update(program);
  assert.equal(broken.code, 1);
  assert.match(broken.err, /^error: Nothing was updated: the checksum of .* so nothing was installed: call this again\.\n$/);
  server.answers.delete(archive);
  assert.equal(await says(program), `ensemble ${version}\n`);
  assert.deepEqual(readdirSync(dirname(program)).sort(), [".ensemble-install", "ensemble"]);

  const { code, out, err } = await update(program);
  assert.deepEqual([code, err], [0, ""]);
  assert.match(out, /^Ensemble 99\.0\.0 for .*\nfrom .*\nchecked only the checksum/);
  assert.equal(await says(program), "ensemble 99.0.0\n");
});

test("no program of the directory in which it is typed takes part", async () => {
  const program = installed("bin/ensemble", "install.sh");
  const here = folder();
  for (const name of ["curl", "tar", "cosign", "sha256sum"]) executable(join(here, name), `#!/bin/sh\ntouch "${here}/ran"\n`);
  const env = { HOME: home, PATH: `.::${process.env.PATH}`, TMPDIR: folder(), ENSEMBLE_RELEASES: server.url, TAR_OPTIONS: "--no-such-option" };
  const { code, err } = await run(program, ["update"], { env, cwd: here });
  assert.equal(code, 0, err);
  assert.equal(await says(program), "ensemble 99.0.0\n");
  assert.equal(existsSync(join(here, "ran")), false);
});

test("for programs it prints one document", async () => {
  const program = installed("bin/ensemble", "install.sh");
  const { out } = await update(program, ["--json"]);
  assert.deepEqual(JSON.parse(out), { version, newest: "99.0.0", how: "Type `ensemble update`.", updated: true });
  assert.equal(await says(program), "ensemble 99.0.0\n");
});

test("each other way has its own command, and nothing is replaced", async () => {
  for (const [path, mark, command] of [
    ["lib/node_modules/@example/x/bin/ensemble", undefined, /Type `npm install --global \S+@99\.0\.0`\.$/],
    ["Cellar/ensemble/1.0.0/bin/ensemble", undefined, /Type `brew update && brew upgrade \S+`\.$/],
    ["bin/ensemble", "image", /Start the container again with the image \S+:99\.0\.0 and the same volume\.$/],
    ["bin/ensemble", undefined, /Download http.*\.tar\.gz, compare its SHA-256 with http.*\.sha256, and put its program in the place of/],
  ]) {
    const program = installed(path, mark);
    const { code, out } = await update(program);
    assert.equal(code, 0);
    assert.match(out.trim(), command);
    assert.equal(await says(program), `ensemble ${version}\n`);
  }
});

test("a version that is not newer is not installed", async () => {
  const program = installed("bin/ensemble", "install.sh");
  for (const newest of ["0.0.1", version]) {
    server.answers.set("/latest/download/VERSION", (_, response) => response.end(`${newest}\n`));
    const { code, out } = await update(program);
    assert.equal(code, 0);
    assert.match(out, /there is nothing to update/);
  }
  server.answers.set("/latest/download/VERSION", (_, response) => response.end("99.0.0; touch x\n"));
  const { code, err } = await update(program);
  assert.equal(code, 1);
  assert.match(err, /names no version/);
  server.answers.delete("/latest/download/VERSION");
  assert.equal(await says(program), `ensemble ${version}\n`);
});

test("the address of releases is https, and the one of this build", async () => {
  const program = installed("bin/ensemble", "install.sh");
  for (const [words, env, word] of [
    [[], { ENSEMBLE_RELEASES: "https://evil.example" }, /ENSEMBLE_RELEASES is for tests/],
    [["--releases", "http://evil.example"], {}, /is not an https address/],
  ]) {
    const { code, err } = await update(program, words, env);
    assert.equal(code, 1);
    assert.match(err, word);
  }
  const names = readFileSync(new URL("../../release/names", import.meta.url), "utf8");
  if (/^releases=$/m.test(names)) {
    assert.match((await update(program, [], { ENSEMBLE_RELEASES: "" })).err, /This build has no address of releases\. Name one/);
  }
});
