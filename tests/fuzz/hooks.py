"""What the configuration of Schemathesis cannot express: how long to wait, and rules that no schema can express."""

import atexit
import collections
import json
import os
import pathlib
import re

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# A long-poll waits when nothing changes. The fuzzer shortens that.
LONG_POLL_TIMEOUT_MS = 20
WAITS = {"/v1/orchestrator/runs/{id}/pend": "timeoutMs", "/v1/orchestrator/leases": "waitMs"}

# Live output ends with its task, like the streams that the configuration leaves out.
LIVE = "/v1/orchestrator/runs/{id}/tasks/{taskId}/output"

# Why a request that matches the schema may be refused: codes that explain it …
CODES = {
    "INVALID_CURSOR": "a cursor must come from an earlier response",
    "INVALID_DEPENDENCY": "dependsOn names other tasks of the same request",
    "DEPENDENCY_CYCLE": "tasks that depend on each other in a cycle can never start",
}
# … and rules between fields, or between a field and stored data. Every error of a response must match one of these.
RULES = [
    r"U\+0000",  # refused in any string and key, whatever the schema of the rest
    r"nested more than 32 levels deep",
    r"^invalid type: floating point",  # 1.0 is a whole number to JSON Schema; to us it is written 1
    r"bytes, not \d+$",  # ciphertext is measured in bytes of UTF-8, a schema can only count characters
    r"requires a change of exactly one of|^goes with|^expects the version of a field|^is the version of a field that this request does not change",  # expected versions
    r"^cannot be combined with|^and encryptionKey must be sent together$|says the same as|contradicts",  # fields together with others
    r"must change at least one|^Send (at least one of )?`",  # an update that changes nothing
    r"^is needed with content|^must be the account key's signature",
    r"^must be at most \d+, the session's; ",
    r"^must be a whole number from 1 on$",  # beyond 2^53 - 1, which not every reader of JSON can hold
    r"^must be in the future$|^must be before `to`, and at most 366 days before it$",
    r"^needs the isolation worktree$|^must say why the machine cannot run the task$",
    r"^must be plan, edit or bypass: |^must be at most one year \(366 days\) ahead$|^must be at most 64 patterns of printable characters$",
    r"^is the session's owner, who needs no share$|^is your own id",
    r"^must be an absolute path without `\.\.`$",
    r"^must be an absolute http or https URL",
    r"^uses the output of .*: name that task in dependsOn$",
]
# … and what only these operations demand: operation, pointer, detail. Each is a whole match of a regular expression.
CHANGE = r"PATCH /v1/(account|machines/\{id\}|sessions/\{id\}|sessions/\{id\}/shares/\{userId\})"
SIGNED = r"POST /v1/orchestrator/runs(/\{id\}/tasks/\{taskId\}/(apply|discard|messages))?"
RUNS, DEVICES, SESSION = "POST /v1/orchestrator/runs", "POST /v1/devices", r"(POST|PATCH) /v1/sessions(/\{id\})?"
FINISH = r"POST /v1/orchestrator/leases/\{id\}/finish"
RULES_OF_OPERATIONS = [
    # A member that says something about another one is nothing without it.
    (CHANGE, "/contentEpoch", r"belongs to encrypt(ed|ion)Key; send both"),
    (CHANGE, "/hostKey", "changes with encryptionKey; send both"),
    (CHANGE, "/expectedVersion", "is (only for a change of|needed with) clientState"),
    (CHANGE, "/contentPublicKey(Signature)?", "is needed with contentPublicKey(Signature)?"),
    (FINISH, "/resumeAt", "belongs to the status quota"),
    (r"POST /v1/orchestrator/leases/\{id\}/heartbeat", "/waitingFor", "is input only for a task with session true"),
    (SIGNED, r"(/tasks/\d+)?/(signature|signedBody)", "must be given: a signature and what it signs come together"),
    # What is sealed says these things itself, and is for one machine.
    (RUNS, r"/tasks/\d+/\w+", "must not be given with `sealed`, which has it"),
    (RUNS, r"/tasks/\d+/session", "must be given with `sealed`|needs `sealed`: .*"),
    (RUNS, r"/tasks/\d+/machineId", "must name the machine that the task is sealed for"),
    (RUNS, r"/tasks/\d+/(maxCostUsd|failOnDenial)", "must not be given with (a session, which has no limit of its cost|the session start)"),
    (RUNS, r"/tasks/\d+/machineId", "is not the id of one of your machines"),
    # These schemas are open in the document, because answers have them too; in a request they are closed.
    (SIGNED, r"(/tasks/\d+)?/signature/.*", r"`.*` is not known here\."),
    (DEVICES, "/list/.*", r"`.*` is not known here\."),
    # Signatures of other parts of the request, and lists that follow from the account's last one.
    (r"POST /v1/auth/links/\{id\}/request", "/signature", "must be by publicKey over the text of this link, .*"),
    (r"POST /v1/auth/links/\{id\}/request", "/kind", "must be cli, web or runner; recovery words need no link"),
    (DEVICES, r"/(list|sealed|names|proofs|encryptionKey).*", r"the device list .*"),
    (r"PATCH /v1/devices/\{id\}", "/name", "is needed, or another field"),
    # A format says nothing about the version of a UUID, and need not be checked at all.
    ("POST /v1/sessions", "/id", "must be a UUID of version 7"),
    (r"PATCH /v1/sessions/\{id\}", "/heartbeat/(h|previousH)ostId", "UUID parsing failed: .*"),
    # What depends on the session, and on who asks.
    ("POST /v1/sessions", "/tag", "is not for sessions that a machine makes"),
    (SESSION, "/hostKey", "is for sessions that a machine made; this session is not one"),
    (SESSION, "/heartbeat/hostId", "is (required from|for) the machine that hosts the session"),
    (SESSION, "/attention", "is set by the session's machine; .*"),
    (SESSION, "/attention/(open|id)", "is at least 1 of a permission or a question, and else 0|is needed, except with the kind none, .*"),
    (r"PATCH /v1/sessions/\{id\}/shares/\{userId\}", "", "must change at least one of accessLevel and encryptedKey"),
]
# A machine's counts are taken although they are too high for a signed number, and kept as the highest: a wrong count must not keep the
# results of an attempt back.
COUNTS = re.compile(r"in body - (usage|changes|permissionDenials) -> .*Value greater than maximum", re.DOTALL)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    if case.operation.path == LIVE and isinstance(case.query, dict) and str(case.query.get("follow")).lower() == "true":
        case.query["follow"] = "false"
    name = WAITS.get(case.operation.path)
    if name is None:
        return
    for place in (case.query, case.body):
        if isinstance(place, dict) and name in place:
            value = place[name]
            if isinstance(value, int) and not isinstance(value, bool) and LONG_POLL_TIMEOUT_MS < value <= 120_000:
                place[name] = LONG_POLL_TIMEOUT_MS
            return
    if name == "timeoutMs" and isinstance(case.query, dict):
        case.query[name] = LONG_POLL_TIMEOUT_MS


@schemathesis.hook
def filter_failure(ctx, failure, case, response):
    if isinstance(failure, RejectedPositiveData) and response.status_code == 400:
        problem = response.json()
        if problem["code"] in CODES:
            return False
        errors = problem.get("errors") or [{"pointer": "", "detail": problem["detail"]}]
        unexplained = [error for error in errors if not is_explained(case.operation.label, error)]
        if unexplained:
            print(f"{case.operation.label}: {unexplained}")
        return bool(unexplained)
    if isinstance(failure, RejectedPositiveData) and response.status_code == 416:
        # Which ranges there are depends on how much a task has written.
        return not fits(r"GET /v1/orchestrator/runs/\{id\}/tasks/\{taskId\}/output", case.operation.label)
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 413:
        return False  # Too long to be read, which is a refusal.
    if isinstance(failure, AcceptedNegativeData) and fits(FINISH, case.operation.label) and COUNTS.search(failure.message):
        return False
    return True


def is_explained(operation, error):
    if any(re.search(rule, error["detail"]) for rule in RULES):
        return True
    found = (operation, error["pointer"], error["detail"])
    return any(all(map(fits, rule, found)) for rule in RULES_OF_OPERATIONS)


def fits(pattern, text):
    return re.fullmatch(pattern, text, re.DOTALL) is not None


STATUSES = collections.defaultdict(collections.Counter)


@schemathesis.hook
def after_call(ctx, case, response):
    STATUSES[case.operation.label][str(response.status_code)] += 1


@atexit.register
def write_tally():
    pathlib.Path(os.environ["FUZZ_TALLY"]).write_text(json.dumps({"statuses": STATUSES}))
