#!/usr/bin/env python3
"""Writes the chart's README.md: how it is installed, and a table of every value with the comment that stands before it in
values.yaml.

    deploy/helm/readme.py            writes ensemble/README.md
    deploy/helm/readme.py --check    fails when it is not what this would write
"""

import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "ensemble"
HEAD = """# The chart of Ensemble

Kubernetes 1.30 or later, PostgreSQL with five databases (see `secrets` below), images in a registry of yours. LiveKit is not in it.

```sh
kubectl create namespace ensemble
kubectl -n ensemble create secret generic ensemble-secrets --from-env-file=secrets.env
helm install ensemble . -n ensemble --set publicBaseUrl=https://ensemble.example.com --set image.registry=registry.example.com/
helm test ensemble -n ensemble
```

The secret has to be there before the install, because the migrations run first: `values-external-secrets.yaml` shows how another program
makes it in time.

`values-small-team.yaml`, `values-10k-users.yaml`, `values-managed-postgres.yaml`, `values-cloudnativepg.yaml` and `values-external-secrets.yaml` are examples. Upgrades, rotation, alerts and LiveKit: docs/OPERATIONS.md of the repository.

## Values

Written from values.yaml by deploy/helm/readme.py. values.schema.json refuses what is not here.

| Value | Default | Meaning |
|---|---|---|
"""


def rows():
    """A value's comment is the one right before it; a block's comment stands at the block."""
    path, comment = [], []
    for line in (CHART / "values.yaml").read_text().splitlines()[1:]:
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("#").strip())
            continue
        match = re.match(r"^( *)([A-Za-z0-9_./-]+): ?(.*)$", line)
        if match:
            depth, key, value = len(match[1]) // 2, match[2], match[3]
            path = path[:depth] + [key]
            if value or comment:
                yield ".".join(path), value, " ".join(comment)
        comment = []


def main():
    cell = lambda text: re.sub(r" {2,}", " ", text).replace("|", "\\|").replace("<", "&lt;")
    text = HEAD + "".join(f"| `{name}` | {f'`{cell(value)}`' if value else ''} | {cell(meaning)} |\n" for name, value, meaning in rows())
    path = CHART / "README.md"
    if "--check" not in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        sys.exit(f"{path.name} of the chart is stale: run deploy/helm/readme.py")


if __name__ == "__main__":
    main()
