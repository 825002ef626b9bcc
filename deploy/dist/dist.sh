#!/usr/bin/env bash
# Makes what a release needs, in dist/: an archive with the one program, the list of what it is made of (SBOM, CycloneDX), and
# checksums. Paths and times of the machine are left out, so that two clean clones can give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${OUT:-$PWD/dist}
tools=$PWD/.cache/tools
profile=dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=$(rustc -vV | sed -n 's/^host: //p')
name=ensemble-$version-$target
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

rm -rf "$out"
mkdir -p "$out/$name"
cp "target/$profile/ensemble" LICENSE README.md CHANGELOG.md "$out/$name/"
# cargo-cyclonedx writes a file next to each manifest; only the program's list is kept.
PATH="$tools/bin:$PATH" cargo cyclonedx --quiet --format json --target "$target" --describe binaries \
    --manifest-path crates/cli/Cargo.toml
mv crates/cli/ensemble_bin.cdx.json "$out/$name/sbom.cdx.json"
find crates services tests -name '*.cdx.json' -not -path '*/node_modules/*' -delete
# The tool notes the moment and a random number. Neither says anything about the program.
python3 - "$out/$name/sbom.cdx.json" "$SOURCE_DATE_EPOCH" "$PWD" <<'PYTHON'
import json, sys, time
path, epoch, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
text = open(path).read().replace("file://" + folder, "file:///src").replace(folder, "/src")
bom = json.loads(text)
bom.pop("serialNumber", None)
bom["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
json.dump(bom, open(path, "w"), indent=2, sort_keys=True)
PYTHON

cp "$out/$name/sbom.cdx.json" "$out/$name.sbom.cdx.json"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u+rw,go+r,go-w' \
    -C "$out" -cf - "$name" | gzip -9n > "$out/$name.tar.gz"
rm -rf "${out:?}/$name"
(cd "$out" && sha256sum "$name.tar.gz" "$name.sbom.cdx.json" > SHA256SUMS)
echo "Made in $out:"
cat "$out/SHA256SUMS"
