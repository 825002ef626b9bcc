// install.sh as `make dist` fills it in, against a server on loopback.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createInterface } from "node:readline";
import { cosign, executable, folder, newestVersion, publish, real, removeFolders, run, serve, sign, signer, target } from "./releases.mjs";

const root = folder();
let server, newest, archive, script;
before(async () => {
  newest = await newestVersion();
  await publish(root, "1.0.0");
  script = join(await publish(root, newest, { program: real }), "install.sh");
  archive = `/download/v${newest}/ensemble-${newest}-${target}`;
  server = await serve(root);
});
after(async () => {
  await server?.close();
  removeFolders();
});

const onLinux = { skip: process.platform !== "linux" };

/** A person with an empty home. The folder for temporary files is their own, to see what is left in it. */
function person(home = folder("a home-")) {
  const temporary = folder();
  const env = { HOME: home, PATH: process.env.PATH, SHELL: "/bin/bash", TMPDIR: temporary };
  const bin = join(home, ".local/bin");
  const install = (words = [], more = {}, path = script) =>
    run("sh", [path, "--releases", server.url, ...words], { env: { ...env, ...more } });
  const isUntouched = () => {
    assert.deepEqual(readdirSync(temporary), []);
    assert.equal(existsSync(bin), false, "nothing was written");
  };
  return { home, bin, env, temporary, install, isUntouched };
}
/** These programs are found first. */
const first = (folder) => ({ PATH: `${folder}:${process.env.PATH}` });
const answer = (path, how) => server.answers.set(path, how);

test("it installs the program, and says before it writes what it is and what was checked", async () => {
  const { bin, install, temporary } = person();
  const { code, out, err } = await install();
  assert.equal(code, 0, err);
  const lines = out.split("\n");
  assert.equal(lines[0], `Ensemble ${newest} for ${target}`);
  assert.match(lines[1], new RegExp(`^from +${server.url}${archive}.tar.gz$`));
  assert.match(lines[2], /^checked only the checksum, from the same place: this does not show who made it$/);
  assert.match(lines[3], new RegExp(`^into +${bin}/ensemble$`));
  assert.equal((await run(join(bin, "ensemble"), ["--version"])).out, `ensemble ${newest}\n`);
  assert.equal(statSync(join(bin, "ensemble")).mode & 0o777, 0o755);
  assert.deepEqual(readdirSync(bin).sort(), [".ensemble-install", "ensemble"]);
  assert.deepEqual(readdirSync(temporary), []);
});

test("it is read from a pipe", async () => {
  const { bin, env } = person();
  const words = ["-s", "--", "--releases", server.url, "--version", "1.0.0"];
  const { code, err } = await run("sh", words, { env, input: readFileSync(script) });
  assert.equal(code, 0, err);
  assert.equal((await run(join(bin, "ensemble"), ["--version"])).out, "ensemble 1.0.0\n");
});

test("half a script does nothing", async () => {
  const { env, isUntouched } = person();
  const text = readFileSync(script, "utf8");
  const ends = [...text.matchAll(/\n/g)].map((found) => found.index).filter((_, line) => line % 12 === 0);
  const call = text.lastIndexOf("ensemble_install");
  for (let end = call; end < text.length - 1; end += 4) ends.push(end);
  const count = server.asked.length;
  for (const end of ends) {
    const { code } = await run("sh", ["-s", "--", "--releases", server.url], { env, input: text.slice(0, end) });
    assert.ok(end <= call || code !== 0, text.slice(call, end));
  }
  isUntouched();
  assert.equal(server.asked.length, count, "nothing was downloaded");
});

test("a download that breaks off or was changed is not installed, and the old program stays", async () => {
  const { bin, install, temporary } = person();
  assert.equal((await install(["--version", "1.0.0"])).code, 0);
  const whole = readFileSync(join(root, `${archive}.tar.gz`));
  const half = whole.subarray(0, whole.length / 2);
  const wrong = Buffer.concat([whole, Buffer.from("x")]);
  const breaksOff = (_, response) => {
    response.writeHead(200, { "content-length": whole.length });
    response.write(half, () => response.destroy());
  };
  for (const [how, word] of [
    [breaksOff, "could not be downloaded"],
    [(_, response) => response.end(half), "the checksum of"],
    [(_, response) => response.end(wrong), "the checksum of"],
  ]) {
    answer(`${archive}.tar.gz`, how);
    const { code, err } = await install();
    assert.equal(code, 1);
    assert.match(err, new RegExp(word));
  }
  server.answers.delete(`${archive}.tar.gz`);
  for (const sums of ["", "x".repeat(64), `${"0".repeat(64)}  other.tar.gz\n`]) {
    answer(`${archive}.sha256`, (_, response) => response.end(sums));
    const { code, err } = await install();
    assert.equal(code, 1);
    assert.match(err, /the checksum of/);
  }
  server.answers.delete(`${archive}.sha256`);
  assert.equal((await run(join(bin, "ensemble"), ["--version"])).out, "ensemble 1.0.0\n");
  assert.deepEqual(readdirSync(bin).sort(), [".ensemble-install", "ensemble"]);
  assert.deepEqual(readdirSync(temporary), []);
});

test("with cosign only the workflow of this very release can have signed it", async () => {
  const sums = join(root, `${archive}.sha256`);
  const identity = `${signer}@refs/tags/v${newest}`;
  const { install, isUntouched } = person();
  for (const other of [`https://evil.example/x@refs/tags/v${newest}`, `${signer}@refs/tags/v1.0.0`]) {
    sign(sums, other);
    const { code, err } = await install([], first(cosign()));
    assert.equal(code, 1);
    assert.match(err, /the signature is not of/);
  }
  rmSync(`${sums}.sigstore.json`);
  const { err } = await install([], first(cosign()));
  assert.match(err, /has no signature of/);
  isUntouched();
  sign(sums, identity);
  const trusting = { SIGSTORE_ROOT_FILE: "/x", SIGSTORE_REKOR_PUBLIC_KEY: "/x", TUF_ROOT: "/x", TAR_OPTIONS: "--no-such-option" };
  const good = await install([], { ...trusting, ...first(cosign()) });
  assert.equal(good.code, 0, good.err);
  assert.match(good.out, new RegExp(`checked the checksum, and the signature of ${identity}`));
});

test("where no program can run it says so and what to do", onLinux, async () => {
  const { install, isUntouched } = person();
  const double = (programs) => {
    const made = folder();
    for (const [name, text] of Object.entries(programs)) executable(join(made, name), `#!/bin/sh\n${text}\n`);
    return first(made);
  };
  const uname = (system, processor) => `[ "$1" = -s ] && echo ${system} || echo ${processor}`;
  for (const [programs, says] of [
    [{ uname: uname("MINGW64_NT-10.0", "x86_64") }, /WSL 2: type `wsl --install`/],
    [{ uname: uname("FreeBSD", "amd64") }, /no program is made for FreeBSD/],
    [{ uname: uname("Linux", "riscv64") }, /no program is made for the processor riscv64/],
    [{ getconf: "[ $1 = LONG_BIT ] && echo 32" }, /a system of 32 bits/],
    [{ getconf: "[ $1 = LONG_BIT ] && echo 64", ldd: "echo musl libc >&2; exit 1" }, /needs glibc, and this system has musl/],
    [{ getconf: "[ $1 = LONG_BIT ] && echo 64 || echo glibc 2.9" }, /needs glibc 2.36 or newer .* and this system has 2.9/],
    [{ getconf: "[ $1 = LONG_BIT ] && echo 64 || echo glibc 2.36.1", uname: uname("Linux", "aarch64") }, /has no release .* for aarch64-unknown-linux-gnu/],
    [{ uname: uname("Darwin", "x86_64"), sysctl: "echo 1" }, /has no release .* for aarch64-apple-darwin/],
    [{ uname: uname("Darwin", "x86_64"), sysctl: "exit 1" }, /has no release .* for x86_64-apple-darwin/],
  ]) {
    const { code, err } = await install([], double(programs));
    assert.equal(code, 1);
    assert.match(err, says);
  }
  isUntouched();
});

test("a home that cannot be written to is named, and sudo is not called", onLinux, async () => {
  const programs = folder();
  executable(join(programs, "sudo"), `#!/bin/sh\ntouch ${programs}/called\n`);
  // Root, too, makes nothing in there.
  const { code, err } = await person("/proc").install([], first(programs));
  assert.equal(code, 1);
  assert.match(err, /\/proc\/\.local\/bin cannot be written to; --dir DIR names another folder/);
  assert.equal(existsSync(join(programs, "called")), false);
});

test("a program that runs is not written over", async () => {
  const { bin, install } = person();
  assert.equal((await install(["--version", "1.0.0"])).code, 0);
  const old = statSync(join(bin, "ensemble")).ino;
  const running = spawn(join(bin, "ensemble"), ["wait"], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: running.stdout })[Symbol.asyncIterator]();
  assert.match((await lines.next()).value, /^ready/);
  assert.equal((await install()).code, 0);
  assert.notEqual(statSync(join(bin, "ensemble")).ino, old);
  running.stdin.end("still here\n");
  assert.equal((await lines.next()).value, "1.0.0: still here");
  assert.equal((await run(join(bin, "ensemble"), ["--version"])).out, `ensemble ${newest}\n`);
});

test("the line for the shell leads to the program, also in a folder with spaces and an apostrophe", async () => {
  const { home, install, env } = person();
  const dir = join(home, "it's a folder");
  for (const [shell, file] of [["/bin/bash", "~/.bashrc"], ["/usr/bin/zsh", "~/.zshrc"], ["/bin/sh", "~/.profile"]]) {
    const { out, err } = await install(["--dir", dir], { SHELL: shell });
    assert.equal(err, "");
    const [, where, line] = out.match(/is not in your PATH. Type this here and in (\S+):\n\n +(.*)\n/);
    assert.equal(where, file);
    const found = await run("sh", ["-c", `${line}; command -v ensemble`], { env });
    assert.equal(found.out, `${dir}/ensemble\n`);
  }
  const fish = await install(["--dir", dir], { SHELL: "/usr/bin/fish" });
  assert.match(fish.out, /fish_add_path '/);
  assert.deepEqual(readdirSync(home), ["it's a folder"], "no file of a shell was changed");
  const known = await install(["--dir", dir], first(dir));
  assert.doesNotMatch(known.out, /PATH/);
  const other = folder();
  executable(join(other, "ensemble"), "#!/bin/sh\n");
  const hidden = await install(["--dir", dir], { PATH: `${other}:${dir}:${process.env.PATH}` });
  assert.match(hidden.out, new RegExp(`is another one: ${other}/ensemble`));
});

test("only https counts, and http on loopback", async () => {
  const { env, install, isUntouched } = person();
  for (const address of [
    "http://releases.example/x",
    "http://127.0.0.1@evil.example/x",
    "http://127.0.0.1:80@evil.example/x",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example:80",
    "http://127.0.0.1?@evil.example",
    "ftp://127.0.0.1/x",
    "/tmp/x",
    "-o/tmp/x",
    "https://",
  ]) {
    const { code, err } = await run("sh", [script, "--releases", address], { env });
    assert.equal(code, 1, address);
    assert.match(err, /is not an https address/, address);
  }
  const { err } = await run("sh", [script], { env: { ...env, ENSEMBLE_RELEASES: "https://evil.example" } });
  assert.match(err, /ENSEMBLE_RELEASES is for tests/);
  // What a server leads to must be https, too.
  const away = await serve(root);
  answer(`${archive}.sha256`, (request, response) => response.writeHead(302, { location: `${away.url}${request.url}` }).end());
  const led = await install();
  assert.equal(led.code, 1);
  assert.deepEqual(away.asked, []);
  server.answers.delete(`${archive}.sha256`);
  await away.close();
  isUntouched();
});

test("wrong arguments are refused, and the newest version is named", async () => {
  const { env, install, isUntouched } = person();
  for (const [words, says] of [
    [["--version", "1.2"], /three numbers/],
    [["--version", "1.2.3/../../x"], /three numbers/],
    [["--version", "1.2.3\n"], /three numbers/],
    [["--version"], /needs a value/],
    [["--sudo"], /there is no option --sudo/],
    [["--version", "7.7.7"], /has no release 7.7.7/],
  ]) {
    const { code, err } = await install(words);
    assert.equal(code, 1);
    assert.match(err, says);
  }
  const named = await run("sh", [script, "--newest"], { env: { ...env, ENSEMBLE_RELEASES: `${server.url}/` } });
  assert.equal(named.out, `${newest}\n`);
  answer("/latest/download/VERSION", (_, response) => response.end("$(touch x)\n"));
  assert.match((await install(["--newest"])).err, /names no version/);
  server.answers.delete("/latest/download/VERSION");
  isUntouched();
});

test("a program that is another version than its archive is not installed", async () => {
  const work = folder();
  const program = executable(join(work, "program"), "#!/bin/sh\necho ensemble 9.9.8\n");
  await publish(work, "9.9.9", { program });
  const wrong = await serve(work);
  const { env, bin } = person();
  const { code, err } = await run("sh", [script, "--releases", wrong.url, "--version", "9.9.9"], { env });
  await wrong.close();
  assert.equal(code, 1);
  assert.match(err, /says that it is ensemble 9.9.8/);
  assert.deepEqual(readdirSync(bin), []);
});

test("uninstalling removes the program and names what stays", async () => {
  const { home, bin, install } = person();
  assert.match((await install(["--uninstall"])).err, /there is no/);
  mkdirSync(bin, { recursive: true });
  executable(join(bin, "ensemble"), "#!/bin/sh\n");
  assert.match((await install(["--uninstall"])).err, /was installed in another way/);
  assert.match((await install()).err, /was installed in another way/);
  rmSync(join(bin, "ensemble"));

  assert.equal((await install()).code, 0);
  mkdirSync(join(home, ".config/ensemble"), { recursive: true });
  mkdirSync(join(home, ".local/share/ensemble"), { recursive: true });
  const units = join(home, ".config/systemd/user");
  mkdirSync(units, { recursive: true });
  writeFileSync(join(units, "ensemble-up.service"), `ExecStart="${bin}/ensemble" "up"\n`);
  assert.match((await install(["--uninstall"])).err, /type `ensemble up --uninstall` first/);
  rmSync(join(units, "ensemble-up.service"));
  const { code, out } = await install(["--uninstall"]);
  assert.equal(code, 0);
  assert.deepEqual(readdirSync(bin), []);
  assert.match(out, new RegExp(`keys and data: ${home}/.config/ensemble\n.*keys and data: ${home}/.local/share/ensemble\n`));
  assert.ok(existsSync(join(home, ".config/ensemble")) && existsSync(join(home, ".local/share/ensemble")));
});
