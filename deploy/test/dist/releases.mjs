// Releases as they are published, made by deploy/dist/pack.sh from a small stand-in or from PROGRAM, and a server that has them.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const repository = resolve(fileURLToPath(import.meta.url), "../../../..");
const names = join(repository, "deploy/test/dist/names");
export const signer = "https://forge.example/x/ensemble/.github/workflows/release.yml";
const issuer = "https://token.actions.githubusercontent.com";
/** The program of the newest version, and the folder in which deploy/test/dist.sh has packed it. */
export const real = process.env.PROGRAM && resolve(process.env.PROGRAM);
/** Programs of Node with which the command of npm is started; NODES names more, separated by colons. */
export const nodes = [process.execPath, ...(process.env.NODES ?? "").split(":").filter(Boolean)];

const folders = [];
export function folder(name = "ensemble-dist-") {
  const made = mkdtempSync(join(tmpdir(), name));
  // Another user runs what is installed in it.
  chmodSync(made, 0o755);
  folders.push(made);
  return made;
}
export function removeFolders() {
  for (const made of folders) rmSync(made, { recursive: true, force: true });
}

/** Runs a program to its end, within a minute unless it says otherwise. Never fails: the code says how it ended. */
export function run(program, words, { input, ...options } = {}) {
  return new Promise((done) => {
    const child = execFile(program, words, { timeout: 60_000, maxBuffer: 1 << 24, ...options }, (error, out, err) => {
      done({ code: error ? (error.code ?? error.signal) : 0, out, err });
    });
    // It may end without having read.
    child.stdin.on("error", () => {});
    child.stdin.end(input ?? "");
  });
}

export function executable(path, text) {
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}

/** A program in the place of ours. It says its version, and reads lines so that a test can see which version still runs. */
export function standIn(version) {
  return `#!/bin/sh
[ "$1" = --version ] && echo "ensemble ${version}" && exit
echo "ready $$ $*"
while read -r line; do echo "${version}: $line"; done
`;
}

/** The version of the program that is packed as the newest. */
export async function newestVersion() {
  if (!real) return "2.0.0";
  return (await run(real, ["--version"])).out.trim().replace("ensemble ", "");
}

const processor = { x64: "x86_64", arm64: "aarch64" }[process.arch];
export const target = `${processor}-${process.platform === "darwin" ? "apple-darwin" : "unknown-linux-gnu"}`;
/** npm's package of this platform. */
export const platformPackage = `@example/ensemble-${process.platform}-${process.arch}`;

/** Adds a release to the folder of releases, as the newest one. */
export async function publish(root, version, { program, platform = target } = {}) {
  const work = folder();
  writeFileSync(join(work, "sbom"), "{}\n");
  const path = program ?? executable(join(work, "program"), standIn(version));
  const to = join(root, "download", `v${version}`);
  const env = { ...process.env, VERSION: version, TARGET: platform, NAMES: names };
  if (program && program === real) cpSync(process.env.RELEASE, to, { recursive: true });
  else {
    const made = await run(join(repository, "deploy/dist/pack.sh"), [path, join(work, "sbom"), to], { env });
    if (made.code !== 0) throw new Error(`pack.sh: ${made.out}${made.err}`);
  }
  sign(join(to, `ensemble-${version}-${platform}.sha256`), `${signer}@refs/tags/v${version}`);
  rmSync(join(root, "latest"), { recursive: true, force: true });
  mkdirSync(join(root, "latest"));
  cpSync(to, join(root, "latest/download"), { recursive: true });
  return to;
}

export const digest = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");

/** A signature as the double of cosign has it: who signed what. */
export function sign(path, identity) {
  writeFileSync(`${path}.sigstore.json`, `${identity} ${issuer} ${digest(path)}\n`);
}

/** A folder with a double of cosign, which checks signatures of `sign`. */
export function cosign() {
  const programs = folder();
  executable(
    join(programs, "cosign"),
    `#!/bin/sh
case "$*" in *--help*) echo "  --new-bundle-format"; exit ;; esac
! env | grep -E '^(SIGSTORE_|TUF_)' >&2 || exit 9
[ "$1 $2 $3" = "verify-blob --new-bundle-format --bundle" ] || exit 9
[ "$5" = --certificate-identity ] && [ "$7" = --certificate-oidc-issuer ] || exit 9
[ "$(cat "$4")" = "$6 $8 $(sha256sum "$9" | cut -d ' ' -f 1)" ] || { echo "none of the expected identities matched" >&2; exit 1; }
`,
  );
  return programs;
}

/** A server on loopback. `answers` has what it answers at a path in place of the file there. */
export async function serve(root) {
  const answers = new Map();
  const asked = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url);
    asked.push(path);
    if (answers.has(path)) return answers.get(path)(request, response);
    const file = join(root, path);
    if (path.includes("..") || !existsSync(file)) return response.writeHead(404).end();
    response.end(readFileSync(file));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    answers,
    asked,
    close: () => (server.closeAllConnections(), new Promise((done) => server.close(done))),
  };
}
