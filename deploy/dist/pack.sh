#!/usr/bin/env bash
# Makes every way to install a program, in a folder: the archive, its sums, install.sh, a Debian package, and what deploy/release/names has a
# name for: packages of npm and a formula of Homebrew.
#
#   pack.sh PROGRAM SBOM FOLDER
#
#   VERSION, TARGET, NAMES   others than those of this clone, for tests
set -euo pipefail
program=$(realpath "$1")
sbom=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")/../.."

version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
names=${NAMES:-deploy/release/names}
name=ensemble-$version-$target
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
owned() { sed -n "s/^$1=//p" "$names"; }
tar=$(command -v gtar || command -v tar)
# A folder as an archive that is the same on each machine.
archive() { # where it is, its name there, the file
    "$tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u+rw,go+r,go-w' \
        -C "$1" -cf - "$2" | gzip -9n >"$3"
}
sums() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/$name"
install -m 0755 "$program" "$work/$name/ensemble"
install -m 0644 LICENSE README.md CHANGELOG.md "$work/$name/"
install -m 0644 "$sbom" "$work/$name/sbom.cdx.json"
cp "$work/$name/sbom.cdx.json" "$out/$name.sbom.cdx.json"
archive "$work" "$name" "$out/$name.tar.gz"
files=("$name.tar.gz" "$name.sbom.cdx.json")

if [[ $target == *-linux-gnu ]] && command -v dpkg-deb >/dev/null; then
    root=$work/deb
    install -D -m 0755 "$program" "$root/usr/bin/ensemble"
    install -D -m 0644 LICENSE "$root/usr/share/doc/ensemble/copyright"
    install -d "$root/usr/lib/systemd/system" "$root/DEBIAN"
    sed '/^#   /d; /^#$/d; s|/usr/local/bin/ensemble|/usr/bin/ensemble|' deploy/systemd/ensemble.service >"$root/usr/lib/systemd/system/ensemble.service"
    install -D -m 0600 deploy/release/deb/ensemble.env "$root/etc/ensemble/ensemble.env"
    echo /etc/ensemble/ensemble.env >"$root/DEBIAN/conffiles"
    install -m 0755 deploy/release/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
    architecture=amd64
    [[ $target != aarch64-* ]] || architecture=arm64
    cat >"$root/DEBIAN/control" <<CONTROL
Package: ensemble
Version: ${version/-/\~}
Architecture: $architecture
Maintainer: The authors of Ensemble <root@localhost>
Installed-Size: $(du -sk --apparent-size "$root" | cut -f 1)
Depends: libc6 (>= $(sed -n "s/.*oldest_glibc='\(.*\)'/\1/p" deploy/release/install.sh)), libgcc-s1
Recommends: git
Section: net
Priority: optional
Description: Work together with coding agents on your own machines
 The command line, and a server that can neither read live sessions nor
 command their agents. The service of this package is a server without a
 runner; it starts when its address is in /etc/ensemble/ensemble.env.
CONTROL
    chmod -R u+rwX,go+rX,go-w "$root/usr" "$root/DEBIAN"
    chmod 0755 "$root" "$root/etc" "$root/etc/ensemble"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$name.deb" >/dev/null
    files+=("$name.deb")
fi
(cd "$out" && sums "${files[@]}" >"$name.sha256")

NAMES=$names VERSION=$version TARGET=$target deploy/dist/ways.py "$out" "$program"
echo "Made in $out:"
(cd "$out" && find . -type f | sort | sed 's|^\./|  |')
