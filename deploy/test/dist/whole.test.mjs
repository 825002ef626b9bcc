// The real program, PROGRAM, in each way to install it: it starts, is replaced while it runs, and ends when it is killed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createInterface } from "node:readline";
import { folder, newestVersion, nodes, platformPackage, publish, real, removeFolders, run, serve, target } from "./releases.mjs";

const root = folder();
let server, version, made;
before(async () => {
  version = await newestVersion();
  made = await publish(root, version, { program: real });
  server = await serve(root);
});
after(async () => {
  await server?.close();
  removeFolders();
});

/** Starts everything, does something meanwhile, and kills it. */
async function up(command, words, meanwhile = async () => {}) {
  const home = folder();
  const env = { HOME: home, PATH: process.env.PATH };
  const all = [...words, "--home", join(home, "e"), "--json", "up", "--no-runner", "--listen", "127.0.0.1:0"];
  const child = spawn(command, all, { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let err = "";
  child.stderr.on("data", (text) => (err += text));
  const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
  const ended = new Promise((done) => child.on("exit", (code, signal) => done([code, signal])));
  const first = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  assert.ok(first.value, err);
  const { url } = JSON.parse(first.value);
  assert.equal((await (await fetch(`${url}/v1/version`)).json()).version, version);
  await meanwhile();
  assert.equal((await fetch(`${url}/v1/version`)).status, 200);
  child.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null], err);
  clearTimeout(timer);
}

test("install.sh installs it, and again while it runs", { timeout: 120_000 }, async () => {
  const home = folder("a home-");
  const install = async () => {
    const env = { HOME: home, PATH: process.env.PATH };
    const { code, err } = await run("sh", [join(made, "install.sh"), "--releases", server.url], { env });
    assert.equal(code, 0, err);
  };
  await install();
  await up(join(home, ".local/bin/ensemble"), [], install);
});

test("the packages of npm start it", { timeout: 120_000 }, async () => {
  const modules = join(folder(), "node_modules");
  for (const [name, file] of [["@example/ensemble", "example-ensemble"], [platformPackage, platformPackage.slice(1).replace("/", "-")]]) {
    const to = join(modules, name);
    assert.equal((await run("mkdir", ["-p", to])).code, 0);
    const words = ["-xzf", join(made, "npm", `${file}-${version}.tgz`), "-C", to, "--strip-components", "1"];
    assert.equal((await run("tar", words)).code, 0);
  }
  for (const node of nodes) await up(node, [join(modules, "@example/ensemble/ensemble.js")]);
});

test("the program of the Debian package starts", { timeout: 120_000, skip: process.platform !== "linux" }, async () => {
  const to = folder();
  assert.equal((await run("dpkg-deb", ["-x", join(made, `ensemble-${version}-${target}.deb`), to])).code, 0);
  await up(join(to, "usr/bin/ensemble"), []);
});
