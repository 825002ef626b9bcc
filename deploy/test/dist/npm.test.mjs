// The packages of npm, installed by npm from a registry on loopback that has the tarballs of a folder.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { folder, newestVersion, nodes, platformPackage, publish, real, removeFolders, run, serve } from "./releases.mjs";

const root = folder();
let server, newest;
before(async () => {
  newest = await newestVersion();
  server = await serve(root);
  const packages = new Map();
  for (const version of ["1.0.0", newest]) {
    const from = join(await publish(root, version, { program: version === newest ? real : undefined }), "npm");
    for (const file of readdirSync(from)) {
      const about = JSON.parse((await run("tar", ["-xzOf", join(from, file), "package/package.json"])).out);
      const content = readFileSync(join(from, file));
      const integrity = `sha512-${createHash("sha512").update(content).digest("base64")}`;
      about.dist = { tarball: `${server.url}/download/v${version}/npm/${file}`, integrity };
      const known = packages.get(about.name) ?? { name: about.name, "dist-tags": {}, versions: {} };
      known.versions[version] = about;
      known["dist-tags"].latest = version;
      packages.set(about.name, known);
    }
  }
  for (const [name, known] of packages) {
    server.answers.set(`/${name}`, (_, response) => response.end(JSON.stringify(known)));
  }
  assert.deepEqual([...packages.keys()].sort(), [platformPackage, "@example/ensemble"].sort());
});
after(async () => {
  await server?.close();
  removeFolders();
});

/** Installs as npm does for a person, or into a project, and returns the command. */
async function npm(prefix, words, isGlobal = true) {
  const env = { PATH: process.env.PATH, HOME: folder(), npm_config_cache: folder(), npm_config_update_notifier: "false" };
  const all = ["install", ...(isGlobal ? ["--global"] : []), "--prefix", prefix, "--registry", server.url, "--no-audit", "--no-fund", ...words];
  const { code, out, err } = await run("npm", all, { env });
  assert.equal(code, 0, out + err);
  return join(prefix, isGlobal ? "bin/ensemble" : "node_modules/.bin/ensemble");
}

const version = async (command, node = process.execPath, more = {}) => run(node, [command, "--version"], more);

test("npm installs the program, plainly and without scripts, also in a folder with spaces", async () => {
  for (const words of [["@example/ensemble"], ["@example/ensemble", "--ignore-scripts"]]) {
    const command = await npm(folder("a prefix-"), words);
    for (const node of nodes) {
      assert.deepEqual(await version(command, node), { code: 0, out: `ensemble ${newest}\n`, err: "" });
    }
  }
});

test("a newer version replaces an older one, and another user can start it", async () => {
  const prefix = folder();
  assert.equal((await version(await npm(prefix, ["@example/ensemble@1.0.0"]))).out, "ensemble 1.0.0\n");
  const command = await npm(prefix, ["@example/ensemble@latest"]);
  assert.equal((await version(command)).out, `ensemble ${newest}\n`);
  if (process.getuid() === 0) {
    const other = await version(command, process.execPath, { uid: 65534, gid: 65534, cwd: "/", env: { PATH: process.env.PATH } });
    assert.deepEqual(other, { code: 0, out: `ensemble ${newest}\n`, err: "" });
  }
});

test("without the package of the platform it says one sentence", async () => {
  // Of a global installation npm 11 leaves nothing out.
  const command = await npm(folder(), ["@example/ensemble", "--omit=optional"], false);
  const { code, out, err } = await version(command);
  assert.deepEqual([code, out], [1, ""]);
  assert.match(err, /^ensemble: the package (\S+) is missing. Install again, with optional .*@example\/ensemble\n$/);
  assert.ok(err.includes(platformPackage));
});
