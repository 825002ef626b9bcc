#!/bin/sh
# Copies a workspace without its code: manifests, cargo's settings, the lock file, and an empty program or library
# wherever a target begins. What comes out is the same, byte for byte, until a manifest or the list of targets changes, so that the layer
# of third-party crates built on it stays valid.
#
#   skeleton.sh <workspace> <where to>
set -eu
from=$1
to=$2
cd "$from"

find .cargo Cargo.toml Cargo.lock crates services tests -name target -prune -o \
    \( -name config.toml -o -name Cargo.toml -o -name Cargo.lock \) -print | while read -r file; do
    mkdir -p "$to/$(dirname "$file")"
    cp "$file" "$to/$file"
done

# Where targets begin: libraries, programs, build scripts, tests, benches, examples (also <name>/main.rs).
find crates services tests -name target -prune -o -name node_modules -prune -o -type f \( \
    -name build.rs -o -path '*/src/lib.rs' -o -path '*/src/main.rs' -o -path '*/src/bin/*.rs' \
    -o -path '*/tests/*.rs' -o -path '*/benches/*.rs' -o -path '*/examples/*.rs' \) -print | while read -r file; do
    mkdir -p "$to/$(dirname "$file")"
    case $file in
        */src/lib.rs) : > "$to/$file" ;;
        *) echo 'fn main() {}' > "$to/$file" ;;
    esac
done
find "$to" -exec touch -h -d '2000-01-01T00:00:00Z' {} +
