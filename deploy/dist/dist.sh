#!/usr/bin/env bash
# Makes what a release needs, in dist/: the one program in all ways to install it, the list of what it is made of (SBOM, CycloneDX), and
# checksums. Paths and times of the machine are left out, so that two clean clones can give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${OUT:-$PWD/dist}
tools=$PWD/.cache/tools
profile=dist
target=$(rustc -vV | sed -n 's/^host: //p')
# In a container the clone can be another user's, which git asks about.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD
# The time of the commit stands for the time of the build.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# Paths of this machine must not be in the program: neither those of Rust code nor those of C code.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
export CFLAGS="-ffile-prefix-map=$PWD=/src -ffile-prefix-map=$cargo_home=/cargo"
export CARGO_INCREMENTAL=0
# What the program says of itself; `ensemble web verify` compares it with the server's.
BUILD_COMMIT=$(git rev-parse HEAD)
export BUILD_COMMIT
make --no-print-directory web
cargo build --locked --profile "$profile" -p ensemble-cli --features jemalloc --bin ensemble

if [ ! -x "$tools/bin/cargo-cyclonedx" ]; then
    env -u RUSTFLAGS -u CFLAGS cargo install --quiet --locked --root "$tools" --version 0.5.9 cargo-cyclonedx
fi

# cargo-cyclonedx writes a file next to each manifest; only the program's list is kept.
PATH="$tools/bin:$PATH" cargo cyclonedx --quiet --format json --target "$target" --describe binaries \
    --manifest-path crates/cli/Cargo.toml
rm -rf "$out"
mkdir -p "$out"
sbom=$(mktemp)
trap 'rm -f "$sbom"' EXIT
mv crates/cli/ensemble_bin.cdx.json "$sbom"
find crates services tests -name '*.cdx.json' -not -path '*/node_modules/*' -delete
# The tool notes the moment and a random number. Neither says anything about the program.
python3 - "$sbom" "$SOURCE_DATE_EPOCH" "$PWD" <<'PYTHON'
import json, sys, time
path, epoch, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
text = open(path).read().replace("file://" + folder, "file:///src").replace(folder, "/src")
bom = json.loads(text)
bom.pop("serialNumber", None)
bom["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
json.dump(bom, open(path, "w"), indent=2, sort_keys=True)
PYTHON

deploy/dist/runs-on.sh "target/$profile/ensemble"
deploy/dist/pack.sh "target/$profile/ensemble" "$sbom" "$out"
