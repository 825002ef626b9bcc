"""What the chart's backups promise: encrypted, one at a time, with the addresses of the databases and no other secret."""

RECIPIENT = "age1" + "q" * 58
VALUES = ["--set", "backup.enabled=true", "--set", f"backup.recipients={{{RECIPIENT}}}", "--set", "backup.keep=0",
          "--set-json", 'networkPolicy.databaseTo=[{"ipBlock":{"cidr":"10.20.0.0/24"}}]',
          "--set-json", 'defaults.extraVolumes=[{"name":"ca","configMap":{"name":"database-ca"}}]',
          "--set-json", 'defaults.extraVolumeMounts=[{"name":"ca","mountPath":"/etc/database-ca","readOnly":true}]']
WRONG = [
    (["--set", "backup.enabled=true"], "backup.recipients"),
    (["--set", "backup.recipients={AGE-SECRET-KEY-1QQ}"], "recipients"),
    (["--set", "backup.schedule=daily"], "schedule"),
]


def check(checks, name, by_kind):
    if name != "backup":
        checks.that("CronJob" not in by_kind and "PersistentVolumeClaim" not in by_kind, f"{name}: a backup without a setting for it")
        return
    cron = by_kind["CronJob"]["ensemble-backup"]["spec"]
    checks.that(cron["concurrencyPolicy"] == "Forbid" and cron["timeZone"] == "Etc/UTC", f"when backups are made: {cron}")
    spec = cron["jobTemplate"]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    env = {e["name"]: e["value"] for e in container["env"]}
    databases = {"identity", "machine_registry", "session_store", "orchestrator", "voice_gateway"}
    checks.that(set(env["BACKUP_DATABASES"].split()) == databases, f"what is backed up: {env}")
    checks.that(env["BACKUP_RECIPIENT"] == RECIPIENT and env["BACKUP_KEEP"] == "", f"how it is kept: {env}")
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    items = {item["key"]: item["path"] for item in volumes["secrets"]["secret"]["items"]}
    checks.that(items == {f"{database.upper()}_DATABASE_URL": f"{database}.url" for database in databases}, f"secrets of the backup: {items}")
    checks.that({mount["name"] for mount in container["volumeMounts"]} == set(volumes), "a volume that is not mounted")
    checks.that("ca" in volumes, "the backup does not know the database's authority")
    claim = by_kind["PersistentVolumeClaim"][volumes["backups"]["persistentVolumeClaim"]["claimName"]]
    checks.that(claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", "an uninstall removes the backups")
    rules = by_kind["NetworkPolicy"]["ensemble-backup"]["spec"]
    checks.that([p["port"] for rule in rules["egress"] for p in rule["ports"]] == [5432] and rules["egress"][0]["to"] and "ingress" not in rules, f"what the backup reaches: {rules}")
