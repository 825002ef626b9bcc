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
    r"^cannot be combined with|^and encryptionKey must be sent together$|says the same as|contradicts",  # fields beside others
    r"must change at least one|^Send (at least one of )?`",  # an update that changes nothing
    r"^is needed beside content|^must be the account key's signature",
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
        details = [error["detail"] for error in problem.get("errors", [])] or [problem["detail"]]
        return not all(any(re.search(rule, detail) for rule in RULES) for detail in details)
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 413:
        return False  # Too long to be read, which is a refusal.
    if isinstance(failure, AcceptedNegativeData) and case.operation.label == "GET /share/{token}":
        # The page is the same for every token; its script asks whether this one opens anything.
        return response.status_code != 200
    return True


STATUSES = collections.defaultdict(collections.Counter)


@schemathesis.hook
def after_call(ctx, case, response):
    STATUSES[case.operation.label][str(response.status_code)] += 1


@atexit.register
def write_tally():
    pathlib.Path(os.environ["FUZZ_TALLY"]).write_text(json.dumps({"statuses": STATUSES}))
