// The other ways to install: their form, their sums, and that a release has all of them.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { digest, executable, folder, publish, removeFolders, repository, run, signer } from "./releases.mjs";

const targets = ["aarch64-apple-darwin", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "x86_64-unknown-linux-gnu"];
const version = "1.2.3-rc.1";
let made;
before(async () => {
  const root = folder();
  for (const platform of targets) made = await publish(root, version, { platform });
});
after(removeFolders);

const has = async (program) => (await run("sh", ["-c", `command -v ${program}`])).code === 0;
const hasDpkg = await has("dpkg-deb");

test("each platform has an archive whose sums hold", async () => {
  for (const target of targets) {
    const name = `ensemble-${version}-${target}`;
    const kinds = target.endsWith("gnu") && hasDpkg ? ["deb", "sbom.cdx.json", "tar.gz"] : ["sbom.cdx.json", "tar.gz"];
    const sums = readFileSync(join(made, `${name}.sha256`), "utf8").trim().split("\n").sort();
    const own = kinds.map((kind) => `${digest(join(made, `${name}.${kind}`))}  ${name}.${kind}`).sort();
    assert.deepEqual(sums, own);
    const { out } = await run("tar", ["-tzf", join(made, `${name}.tar.gz`)]);
    assert.ok(out.includes(`${name}/ensemble\n`) && out.includes(`${name}/sbom.cdx.json\n`), out);
  }
});

test("the same program gives the same bytes", async () => {
  const work = folder();
  const program = executable(join(work, "program"), "#!/bin/sh\n");
  const [one, other] = [await publish(folder(), "1.0.0", { program }), await publish(folder(), "1.0.0", { program })];
  const all = (where) => readdirSync(where, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  assert.ok(all(one).length >= 8);
  for (const entry of all(one)) {
    const path = join(entry.parentPath ?? entry.path, entry.name);
    assert.equal(digest(path), digest(path.replace(one, other)), entry.name);
  }
});

test("the formula has every platform with the sum of its archive", async () => {
  const text = readFileSync(join(made, "ensemble.rb"), "utf8");
  for (const target of targets) {
    const name = `ensemble-${version}-${target}.tar.gz`;
    const address = `https://releases.example/releases/download/v${version}/${name}`;
    assert.ok(text.includes(`url "${address}"\n      sha256 "${digest(join(made, name))}"`), target);
  }
  if (await has("ruby")) assert.equal((await run("ruby", ["-c", join(made, "ensemble.rb")])).out, "Syntax OK\n");
});

test("the Debian package has the program, the unit, and settings that only root reads", { skip: !hasDpkg }, async () => {
  for (const [target, architecture] of [["x86_64", "amd64"], ["aarch64", "arm64"]]) {
    const deb = join(made, `ensemble-${version}-${target}-unknown-linux-gnu.deb`);
    const { out: about } = await run("dpkg-deb", ["-f", deb]);
    for (const field of ["Package: ensemble", "Version: 1.2.3~rc.1", `Architecture: ${architecture}`, "Depends: libc6 (>= 2.36), libgcc-s1"]) {
      assert.ok(about.split("\n").includes(field), `${field}\n${about}`);
    }
    const { out: files } = await run("dpkg-deb", ["-c", deb]);
    for (const file of [/^-rwxr-xr-x root\/root .* \.\/usr\/bin\/ensemble$/m, /^-rw------- root\/root .* \.\/etc\/ensemble\/ensemble\.env$/m]) {
      assert.match(files, file);
    }
    const to = folder();
    assert.equal((await run("dpkg-deb", ["-R", deb, to])).code, 0);
    const unit = readFileSync(join(to, "usr/lib/systemd/system/ensemble.service"), "utf8");
    const source = readFileSync(join(repository, "deploy/systemd/ensemble.service"), "utf8");
    assert.match(unit, /^ExecStart=\/usr\/bin\/ensemble up --no-runner --no-account /m);
    // The unit is that of the repository, without how to copy it by hand.
    const rules = (text) => text.replaceAll("/usr/local/bin/", "/usr/bin/").split("\n").filter((line) => line && !line.startsWith("#"));
    assert.deepEqual(rules(unit), rules(source));
    assert.doesNotMatch(unit, /install -m/);
    assert.equal(readFileSync(join(to, "DEBIAN/conffiles"), "utf8"), "/etc/ensemble/ensemble.env\n");
    for (const script of ["postinst", "prerm", "postrm"]) assert.equal((await run("sh", ["-n", join(to, "DEBIAN", script)])).code, 0);
  }
});

test("what has no name is not made", async () => {
  const work = folder();
  const program = executable(join(work, "program"), "#!/bin/sh\n");
  const out = join(work, "out");
  const names = join(repository, "deploy/release/names");
  const none = Object.fromEntries([...readFileSync(names, "utf8").matchAll(/^(\w+)=$/gm)].map(([, name]) => [name, true]));
  const env = { ...process.env, VERSION: "1.0.0", TARGET: targets[3], NAMES: names };
  assert.equal((await run(join(repository, "deploy/dist/pack.sh"), [program, program, out], { env })).code, 0);
  const files = readdirSync(out);
  assert.equal(files.includes("npm"), !none.npm_scope);
  assert.equal(files.includes("ensemble.rb"), !none.homebrew_tap && !none.releases);
  assert.ok(files.includes("install.sh") && files.includes("VERSION"));
});

test("install.sh has the signer, and no name that is left open", () => {
  const text = readFileSync(join(made, "install.sh"), "utf8");
  assert.ok(text.includes(`signer='${signer}'`) && text.includes(`version='${version}'`));
  assert.doesNotMatch(text, /@[A-Z]+@/);
});

test("the workflow builds for four platforms, on Linux in a container of the oldest Debian", () => {
  const text = readFileSync(join(repository, ".github/workflows/release.yml"), "utf8");
  const rows = [...text.matchAll(/^ +- \{ os: ([\w.-]+), container: "(.*)" \}$/gm)].map(([, os, container]) => [os, container]);
  assert.deepEqual(rows.map(([os]) => os), ["ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "macos-15-intel"]);
  for (const [os, container] of rows) {
    assert.match(container, os.startsWith("ubuntu") ? /^rust:[\d.]+-bookworm$/ : /^$/, os);
  }
  const toolchain = readFileSync(join(repository, "rust-toolchain.toml"), "utf8").match(/channel = "([\d.]+)"/)[1];
  assert.ok(toolchain.startsWith(rows[0][1].match(/[\d.]+/)[0]), "the container has another Rust");
});

test("a program that needs a newer glibc than Debian 12 has is refused", async () => {
  const program = join(folder(), "program");
  for (const [needs, code] of [["GLIBC_2.2.5 GLIBC_2.36", 0], ["GLIBC_2.9 GLIBC_2.39", 1], ["GLIBC_3.0", 1]]) {
    executable(program, needs);
    assert.equal((await run(join(repository, "deploy/dist/runs-on.sh"), [program])).code, code, needs);
  }
});
