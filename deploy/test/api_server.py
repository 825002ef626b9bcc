"""A Kubernetes API server with its etcd, for tests of the chart: everything is checked and stored as in a cluster, and nothing runs.
A thread ends the jobs, in place of the controllers."""

import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

TOKEN = "the-token-of-the-test"
SECONDS = 60


def program(name):
    """The path of a program, by its variable (KUBE_APISERVER, ETCD) or the search path; None: it is not here."""
    return os.environ.get(name.upper().replace("-", "_")) or shutil.which(name)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Refused(Exception):
    pass


class Cluster:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ensemble-api-server-"))
        self.programs = []
        self.kubeconfig = self.folder / "kubeconfig"
        self.job_seconds = 0.0
        self.over = threading.Event()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.over.set()
        for one in reversed(self.programs):
            one.terminate()
            one.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        etcd, peers, port = (free_port() for _ in range(3))
        at = f"http://127.0.0.1:{etcd}"
        self._run(program("etcd"), "--data-dir", self.folder / "etcd", "--listen-client-urls", at, "--advertise-client-urls", at,
                  "--listen-peer-urls", f"http://127.0.0.1:{peers}", "--unsafe-no-fsync")
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},test,test,system:masters\n")
        self._run(program("kube-apiserver"), "--etcd-servers", at, "--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", self.folder / "certificates",
                  "--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc",
                  "--service-account-key-file", key, "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/16")
        self.url = f"https://127.0.0.1:{port}"
        end = time.monotonic() + SECONDS
        while not self._is_ready():
            if time.monotonic() > end or any(one.poll() is not None for one in self.programs):
                raise SystemExit(f"the API server does not start:\n{(self.folder / 'kube-apiserver.log').read_text()[-3000:]}")
            time.sleep(0.2)
        authority = self.folder / "certificates/apiserver.crt"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(authority)}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}))
        threading.Thread(target=self._end_jobs, daemon=True).start()

    def _run(self, *command):
        log = open(self.folder / f"{pathlib.Path(command[0]).name}.log", "wb")
        self.programs.append(subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, cwd=self.folder))

    def _is_ready(self):
        try:
            self.ask("GET", "/readyz")
            return True
        except (OSError, Refused):
            return False

    def ask(self, method, path, body=None, kind="application/json"):
        """The answer, and what the server warns of."""
        authority = self.folder / "certificates/apiserver.crt"
        context = ssl.create_default_context(cafile=authority if authority.exists() else None)
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, context=context, timeout=SECONDS) as answer:
                text = answer.read().decode()
                return (json.loads(text) if text.startswith("{") else text), answer.headers.get_all("Warning") or []
        except urllib.error.HTTPError as error:
            raise Refused(f"{method} {path}: {error.code} {error.read().decode()[:2000]}") from error

    def get(self, path):
        return self.ask("GET", path)[0]

    def resources(self):
        """Of each version and kind: the name in paths, and whether it is in a namespace."""
        found = {}
        groups = ["/api/v1"] + [f"/apis/{one['preferredVersion']['groupVersion']}" for one in self.get("/apis")["groups"]]
        for group in groups:
            for one in self.get(group)["resources"]:
                if "/" not in one["name"]:
                    found[(group.removeprefix("/apis/").removeprefix("/api/"), one["kind"])] = (group, one["name"], one["namespaced"])
        return found

    def _end_jobs(self):
        """As the job controller does when the pod of a job has ended well."""
        while not self.over.wait(0.3):
            try:
                for job in self.get("/apis/batch/v1/jobs")["items"]:
                    if any(one["status"] == "True" for one in job.get("status", {}).get("conditions", [])):
                        continue
                    began = job["metadata"]["creationTimestamp"]
                    if time.time() - time.mktime(time.strptime(began, "%Y-%m-%dT%H:%M:%SZ")) + time.timezone < self.job_seconds:
                        continue
                    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    conditions = [{"type": name, "status": "True", "lastTransitionTime": now, "lastProbeTime": now} for name in ("SuccessCriteriaMet", "Complete")]
                    status = {"startTime": began, "completionTime": now, "succeeded": 1, "conditions": conditions}
                    path = f"/apis/batch/v1/namespaces/{job['metadata']['namespace']}/jobs/{job['metadata']['name']}/status"
                    self.ask("PATCH", path, {"status": status}, "application/merge-patch+json")
            except (OSError, Refused) as error:
                # A job may be deleted meanwhile.
                if not self.over.is_set() and "404" not in str(error):
                    print(f"jobs: {error}")
