#!/usr/bin/env bash
# Fails when a program of Linux needs a newer glibc than install.sh and the package of npm ask for: that of the oldest Debian.
#
#   runs-on.sh PROGRAM
set -euo pipefail
oldest=$(sed -n "s/.*oldest_glibc='\(.*\)'/\1/p" "$(dirname "$0")/../release/install.sh")
newest=$(grep -aoE 'GLIBC_[0-9]+\.[0-9]+' "$1" | sed 's/GLIBC_//' | sort -t . -k 1,1n -k 2,2n | tail -n 1 || true)
[ -n "$newest" ] || { echo "$1 names no version of glibc"; exit 0; }
if [ "$(printf '%s\n' "$newest" "$oldest" | sort -t . -k 1,1n -k 2,2n | tail -n 1)" != "$oldest" ]; then
    echo "$1 needs glibc $newest, and $oldest is the oldest that is supported: build it there" >&2
    exit 1
fi
echo "$1 needs glibc $newest or newer"
