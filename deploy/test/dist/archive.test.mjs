// Publishing a release, with doubles of gh, npm and cosign: one that failed half-way is continued by the same command.
import assert from "node:assert/strict";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { executable, folder, publish, removeFolders, repository, run } from "./releases.mjs";

const version = "1.2.3";
after(removeFolders);

/** A clone whose dist/ has every archive, and the programs that publish them. */
async function clone() {
  const [root, at, programs] = [folder(), folder(), folder()];
  for (const path of ["deploy/release", "deploy/dist", "LICENSE"]) cpSync(join(repository, path), join(at, path), { recursive: true });
  cpSync(join(repository, "deploy/test/dist/names"), join(at, "deploy/release/names"));
  for (const platform of ["aarch64-apple-darwin", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "x86_64-unknown-linux-gnu"]) {
    cpSync(await publish(root, version, { platform }), join(at, "dist"), { recursive: true });
  }
  const commit = "git init -q && git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m x";
  assert.equal((await run("sh", ["-c", commit], { cwd: at })).code, 0);
  executable(join(programs, "cosign"), "#!/bin/sh\nexit 0\n");
  executable(
    join(programs, "gh"),
    `#!/bin/sh
echo "gh $2" >>"$LOG"
case $2 in
view) cat "$STATE/draft" ;;
create) [ ! -e "$STATE/draft" ] && echo true >"$STATE/draft" ;;
upload) case " $* " in *" --clobber "*) ;; *) [ ! -e "$STATE/uploaded" ] ;; esac && : >"$STATE/uploaded" ;;
edit) echo false >"$STATE/draft" ;;
esac
`,
  );
  executable(
    join(programs, "npm"),
    `#!/bin/sh
case $1 in
view) grep -F "$2 " "$STATE/npm" >/dev/null && echo found; exit 0 ;;
publish)
    name=$(tar -xzOf "$2" package/package.json | sed -n 's/^  "name": "\\(.*\\)",$/\\1/p')
    [ "$(wc -l <"$STATE/npm")" -lt "$(cat "$STATE/most")" ] || exit 1
    ! grep -F "$name@" "$STATE/npm" || exit 1
    echo "$name@${version} " >>"$STATE/npm"
    ;;
esac
`,
  );
  const state = folder();
  writeFileSync(join(state, "npm"), "");
  const env = { ...process.env, VERSION: version, STATE: state, LOG: join(state, "log"), PATH: `${programs}:${process.env.PATH}` };
  delete env.DRY_RUN;
  return { state, archive: () => run(join(at, "deploy/release/archive.sh"), [], { env }) };
}

test("a release that failed half-way is continued, and one that is published stays as it is", async () => {
  const { state, archive } = await clone();
  writeFileSync(join(state, "most"), "2\n");
  assert.notEqual((await archive()).code, 0);
  assert.equal(readFileSync(join(state, "draft"), "utf8"), "true\n", "a part of a release is seen");
  writeFileSync(join(state, "most"), "9\n");
  const again = await archive();
  assert.equal(again.code, 0, again.err);
  assert.equal(readFileSync(join(state, "draft"), "utf8"), "false\n");
  assert.equal(readFileSync(join(state, "npm"), "utf8").trim().split("\n").at(-1).trim(), `@example/ensemble@${version}`);
  assert.equal(readFileSync(join(state, "npm"), "utf8").trim().split("\n").length, 5);
  writeFileSync(join(state, "log"), "");
  assert.match((await archive()).out, /is published already/);
  assert.equal(readFileSync(join(state, "log"), "utf8"), "gh view\n");
});

test("npm's packages name the repository whose workflow publishes them", async () => {
  const made = join(await publish(folder(), version), "npm");
  const { out } = await run("sh", ["-c", `for one in ${made}/*.tgz; do tar -xzOf "$one" package/package.json | tr -d '\\n'; echo; done`]);
  const all = out.trim().split("\n").map((text) => JSON.parse(text));
  assert.equal(all.length, 2);
  for (const about of all) assert.deepEqual(about.repository, { type: "git", url: "git+https://forge.example/x/ensemble.git" });
});
