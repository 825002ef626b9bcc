#!/usr/bin/env python3
"""Writes install.sh, VERSION, the packages of npm and the formula of Homebrew into a folder with archives.

    ways.py FOLDER [PROGRAM]     # with the program: npm's package of its platform, too

VERSION, TARGET and NAMES come from pack.sh. A way whose name the project does not own is left out.
"""

import gzip
import io
import json
import os
import re
import sys
import tarfile

PLATFORMS = {
    "aarch64-apple-darwin": ("darwin", "arm64", "on_macos", "on_arm"),
    "x86_64-apple-darwin": ("darwin", "x64", "on_macos", "on_intel"),
    "aarch64-unknown-linux-gnu": ("linux", "arm64", "on_linux", "on_arm"),
    "x86_64-unknown-linux-gnu": ("linux", "x64", "on_linux", "on_intel"),
}
ABOUT = "Work together with coding agents on your own machines"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def read(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def names():
    with open(os.environ["NAMES"], encoding="utf-8") as file:
        return dict(line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#"))


def script(owned, version):
    text = read("release", "install.sh")
    for name, value in [("VERSION", version), ("RELEASES", owned["releases"]), ("SIGNER", owned["signer"])]:
        if "'" in value:
            sys.exit(f"{name} has an apostrophe")
        text = text.replace(f"@{name}@", value)
    return text


def package(folder, about, files):
    """A package as npm makes it: everything is below `package`."""
    whole = io.BytesIO()
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    with gzip.GzipFile(fileobj=whole, mode="wb", filename="", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        text = json.dumps(about, indent=2).encode() + b"\n"
        for name, content, mode in [("package.json", text, 0o644), ("LICENSE", read("..", "LICENSE").encode(), 0o644), *files]:
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode, entry.mtime = len(content), mode, epoch
            archive.addfile(entry, io.BytesIO(content))
    name = about["name"].lstrip("@").replace("/", "-")
    with open(os.path.join(folder, f"{name}-{about['version']}.tgz"), "wb") as file:
        file.write(whole.getvalue())


def npm(folder, owned, version, program):
    os.makedirs(folder, exist_ok=True)
    scope = owned["npm_scope"]
    common = {"version": version, "description": ABOUT, "license": "Apache-2.0"}
    if owned["signer"]:
        # npm takes a package with provenance only from the workflow of this repository.
        common["repository"] = {"type": "git", "url": f"git+{owned['signer'].split('/.github/')[0]}.git"}
    platforms = {target: f"{scope}/ensemble-{system}-{processor}" for target, (system, processor, *_) in PLATFORMS.items()}
    shim = {
        "name": f"{scope}/ensemble",
        **common,
        "bin": {"ensemble": "ensemble.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {name: version for name in sorted(platforms.values())},
        "config": {"glibc": re.search(r"oldest_glibc='(.*)'", read("release", "install.sh"))[1]},
    }
    package(folder, shim, [("ensemble.js", read("release", "npm", "ensemble.js").encode(), 0o755)])
    if program:
        target = os.environ["TARGET"]
        system, processor, *_ = PLATFORMS[target]
        about = {"name": platforms[target], **common, "os": [system], "cpu": [processor]}
        if system == "linux":
            about["libc"] = ["glibc"]
        with open(program, "rb") as file:
            package(folder, about, [("bin/ensemble", file.read(), 0o755)])


def formula(folder, releases, version):
    """Of the platforms whose sums are in the folder."""
    found = {}
    for target, (_, _, system, processor) in PLATFORMS.items():
        name = f"ensemble-{version}-{target}"
        sums = os.path.join(folder, f"{name}.sha256")
        if os.path.exists(sums):
            with open(sums, encoding="utf-8") as file:
                known = {line.split()[1]: line.split()[0] for line in file}
            url = f"{releases}/download/v{version}/{name}.tar.gz"
            found.setdefault(system, []).append((processor, url, known[f"{name}.tar.gz"]))
    lines = [
        "class Ensemble < Formula",
        f'  desc "{ABOUT}"',
        f'  homepage "{releases.removesuffix("/releases")}"',
        f'  version "{version}"',
        '  license "Apache-2.0"',
    ]
    for system in sorted(found):
        lines += ["", f"  {system} do"]
        for processor, url, digest in sorted(found[system]):
            lines += [f"    {processor} do", f'      url "{url}"', f'      sha256 "{digest}"', "    end"]
        lines.append("  end")
    lines += ["", "  def install", '    bin.install "ensemble"', "  end", ""]
    lines += ["  test do", '    assert_match "ensemble #{version}", shell_output("#{bin}/ensemble --version")', "  end", "end", ""]
    write(os.path.join(folder, "ensemble.rb"), "\n".join(lines))


def main():
    folder, program = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    version, owned = os.environ["VERSION"], names()
    write(os.path.join(folder, "install.sh"), script(owned, version))
    write(os.path.join(folder, "VERSION"), version + "\n")
    if owned["npm_scope"]:
        npm(os.path.join(folder, "npm"), owned, version, program)
    if owned["homebrew_tap"] and owned["releases"]:
        formula(folder, owned["releases"], version)
    for name in [name for name, value in owned.items() if not value]:
        print(f"{name} has no name in deploy/release/names: nothing is made for it")


if __name__ == "__main__":
    main()
