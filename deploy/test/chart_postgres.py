"""What the two examples with PostgreSQL promise: a certificate that is checked, and databases that fit what the chart asks for."""

import yaml


def check(checks, name, by_kind, root):
    if name not in ("cloudnativepg", "managed-postgres"):
        return
    jobs = [job for job in by_kind["Job"] if "-migrate-" in job]
    for kind, thing in [("Deployment", "ensemble-session-store")] + [("Job", job) for job in jobs]:
        spec = by_kind[kind][thing]["spec"]["template"]["spec"]
        volume = next((v for v in spec["volumes"] if v["name"] == "database-ca"), {})
        mount = next((m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "database-ca"), {})
        checks.that(mount.get("mountPath") == "/etc/database-ca" and volume, f"{name}: {thing} does not know the database's authority")
        checks.that(not volume.get("secret") or [i["key"] for i in volume["secret"]["items"]] == ["ca.crt"], f"{name}: {thing} can read the authority's key")
    egress = by_kind["NetworkPolicy"]["ensemble-session-store"]["spec"]["egress"]
    to = next(rule.get("to") for rule in egress if {"protocol": "TCP", "port": 5432} in rule["ports"])
    checks.that(to, f"{name}: any PostgreSQL may be reached")
    if name == "cloudnativepg":
        objects = example(root)
        cluster = objects[0]
        checks.that(to == [{"podSelector": {"matchLabels": {"cnpg.io/cluster": cluster["metadata"]["name"]}}}], f"{name}: {to}")
        asked = {job.split("-migrate-")[1].replace("-", "_") for job in jobs}
        databases = {o["spec"]["name"] for o in objects[1:]}
        roles = {role["name"] for role in cluster["spec"]["managed"]["roles"]}
        checks.that(asked == databases == roles, f"{name}: {asked} are asked for, there are {databases} and {roles}")
        checks.that(all(o["spec"]["owner"] == o["spec"]["name"] and o["spec"]["databaseReclaimPolicy"] == "retain" for o in objects[1:]), "owners of the databases")


def example(root):
    return list(yaml.safe_load_all((root / "deploy/helm/postgres/cloudnativepg.yaml").read_text()))
