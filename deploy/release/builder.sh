#!/usr/bin/env bash
# Makes the builder of `make publish`: one that keeps attestations, and builds for processors that this machine does not have. Those
# are emulated, which takes hours for arm64; a builder of yours with a machine of each kind does not need this.
set -euo pipefail
docker run --privileged --rm "${BINFMT_IMAGE:-tonistiigi/binfmt:qemu-v9.2.2}" --install arm64,amd64
docker buildx inspect ensemble-release >/dev/null 2>&1 || docker buildx create --name ensemble-release --driver docker-container
docker buildx use ensemble-release
