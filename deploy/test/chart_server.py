#!/usr/bin/env python3
"""The chart on a real Kubernetes API server, without anything that runs pods: what only a server can tell. It takes all that the
chart renders without a warning, by server-side apply as well; an upgrade never lowers the number of replicas; migrations that last
longer than Helm waits go on, and the upgrade that waits for them succeeds."""

import argparse
import os
import pathlib
import subprocess
import sys
import time

import api_server
import yaml
from chart import CHART, RENDERINGS, Checks, template

NAMESPACE = "ensemble"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
SMALL = ["-f", str(CHART / "values-small-team.yaml")]
SCALED = SMALL + ["--set", "defaults.autoscaling.enabled=true", "--set", "defaults.autoscaling.minReplicas=2"]
SOON = 60


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    tools = parser.parse_args().tools.resolve()
    missing = [name for name in ("kube-apiserver", "etcd") if not api_server.program(name)]
    missing += [] if (tools / "bin/helm").exists() else ["helm"]
    if missing:
        print(f"skipped: chart-server-test (not here: {', '.join(missing)})")
        return
    os.environ["PATH"] = f"{tools / 'bin'}:{os.environ['PATH']}"
    checks = Checks()
    with api_server.Cluster() as cluster:
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        # Controllers make it in a cluster.
        cluster.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        define(cluster, tools)
        takes_all(checks, cluster, tools)
        keeps_replicas(checks, cluster, tools)
        waits_for_migrations(checks, cluster, tools)
    for failure in checks.failed:
        print(f"FAILED {failure}")
    print(f"chart-server-test: {checks.done - len(checks.failed)} of {checks.done} checks hold")
    sys.exit(1 if checks.failed else 0)


def define(cluster, tools):
    """The definitions of the Gateway API, the Prometheus operator and CloudNativePG."""
    names = []
    # PyYAML has no opinion on a bare `=`, which these files have as text.
    yaml.SafeLoader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)
    for path in sorted((tools / "definitions").glob("*/*.yaml")):
        for one in yaml.safe_load_all(path.read_text()):
            if one and one["kind"] == "CustomResourceDefinition":
                cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)
                names.append(one["metadata"]["name"])
    end = time.monotonic() + SOON
    for name in names:
        while not any(one["type"] == "Established" and one["status"] == "True" for one in
                      cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").get("status", {}).get("conditions", [])):
            if time.monotonic() > end:
                raise SystemExit(f"{name} is not served")
            time.sleep(0.1)


def takes_all(checks, cluster, tools):
    """Server-side apply, as Argo CD, Flux and Helm 4 do, refuses names that are given twice; a server warns of what is restricted."""
    minor = ".".join(cluster.get("/version")["gitVersion"].removeprefix("v").split(".")[:2])
    known = cluster.resources()
    for name, values in RENDERINGS.items():
        rendered = template(tools, values, minor)
        checks.that(rendered.returncode == 0, f"{name}: {rendered.stderr}")
        count = 0
        for one in filter(None, yaml.safe_load_all(rendered.stdout)):
            group, plural, is_in_namespace = known[(one["apiVersion"], one["kind"])]
            within = f"/namespaces/{one['metadata'].get('namespace', NAMESPACE)}" if is_in_namespace else ""
            path = f"{group}{within}/{plural}/{one['metadata']['name']}?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
            try:
                _, warnings = cluster.ask("PATCH", path, one, "application/apply-patch+yaml")
                checks.that(not warnings, f"{name}: {one['kind']} {one['metadata']['name']}: {warnings}")
            except api_server.Refused as error:
                checks.that(False, f"{name}: {error}")
            count += 1
        print(f"applied {name}: {count} objects")


def helm(cluster, tools, *arguments):
    return subprocess.run([tools / "bin/helm", "--kubeconfig", cluster.kubeconfig, "-n", NAMESPACE, *arguments], capture_output=True, text=True)


def replicas(cluster):
    return {one["metadata"]["name"]: one["spec"]["replicas"] for one in cluster.get(DEPLOYMENTS)["items"]}


def keeps_replicas(checks, cluster, tools):
    def upgrade(what, *values):
        ran = helm(cluster, tools, "upgrade", "--install", "ensemble", str(CHART), *values)
        checks.that(ran.returncode == 0, f"{what}: {ran.stderr}")
        return replicas(cluster)

    first = upgrade("installing", *SMALL)
    if not first:
        return
    checks.that(len(first) >= 6 and set(first.values()) == {2}, f"a small team has two of each: {first}")
    on = upgrade("switching autoscaling on", *SCALED)
    checks.that(on == first, f"switching autoscaling on keeps the replicas: {on}")
    # As an autoscaler does.
    one = sorted(name for name in on if "session-store" in name)[0]
    cluster.ask("PATCH", f"{DEPLOYMENTS}/{one}/scale", {"spec": {"replicas": 5}}, "application/merge-patch+json")
    again = upgrade("an upgrade under autoscaling", *SCALED, "--set", "services.session-store.env.RUST_LOG=debug")
    checks.that(again == {**on, one: 5}, f"an upgrade keeps what the autoscaler has set: {again}")
    back = helm(cluster, tools, "rollback", "ensemble")
    checks.that(back.returncode == 0 and replicas(cluster)[one] >= 2, f"the way back: {back.stderr} {replicas(cluster)}")
    print(f"replicas: {first} -> {on} -> {again} -> {replicas(cluster)}")


def waits_for_migrations(checks, cluster, tools):
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    cluster.job_seconds = 4.0
    short = helm(cluster, tools, "upgrade", "ensemble", str(CHART), *SMALL, "--timeout", "2s")
    checks.that(short.returncode != 0, "Helm does not wait longer than its timeout")
    stored = cluster.get(jobs)["items"]
    checks.that(bool(stored), "a migration that lasts longer than Helm waits is not removed")
    whole = helm(cluster, tools, "upgrade", "ensemble", str(CHART), *SMALL, "--timeout", "80m")
    checks.that(whole.returncode == 0, f"the upgrade that waits for its migrations: {whole.stderr}")
    status = helm(cluster, tools, "status", "ensemble", "-o", "yaml")
    checks.that(yaml.safe_load(status.stdout)["info"]["status"] == "deployed", status.stdout[:500])


if __name__ == "__main__":
    main()
