#!/usr/bin/env python3
"""Writes the dashboards next to it: one for the whole, one for each service. All of them are made of the same few panels,
so that a person who knows one knows all.

    deploy/grafana/dashboards.py            writes dashboards/*.json
    deploy/grafana/dashboards.py --check    fails when a file is not what this would write
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SERVICES = ["edge-proxy", "identity", "machine-registry", "session-store", "orchestrator", "voice-gateway"]


class Board:
    """Panels from left to right, rows from top to bottom; 24 columns wide."""

    def __init__(self, uid, title, description):
        self.uid, self.title, self.description = uid, title, description
        self.panels, self.x, self.y, self.height = [], 0, 0, 0

    def row(self, title):
        self._wrap()
        self.panels.append({"id": len(self.panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                            "gridPos": {"x": 0, "y": self.y, "w": 24, "h": 1}})
        self.y += 1

    def graph(self, title, queries, unit="short", width=8, height=8, description="", stack=False, limits=None):
        defaults = {"unit": unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 15 if stack else 5, "showPoints": "never",
                    "stacking": {"mode": "normal" if stack else "none"}}}
        if limits:
            defaults["thresholds"] = {"mode": "absolute", "steps": [{"color": "green", "value": None}] + limits}
            defaults["custom"]["thresholdsStyle"] = {"mode": "dashed"}
        self._add("timeseries", title, queries, width, height, description,
                  {"fieldConfig": {"defaults": defaults, "overrides": []},
                   "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}})

    def stat(self, title, query, unit="short", width=4, height=4, description="", steps=None):
        defaults = {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps or [{"color": "text", "value": None}]}}
        self._add("stat", title, [(query, "")], width, height, description,
                  {"fieldConfig": {"defaults": defaults, "overrides": []},
                   "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}})

    def table(self, title, query, width=12, height=8, description="", unit="short"):
        self._add("table", title, [(query, "")], width, height, description,
                  {"fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                   "transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True}}}],
                   "options": {"sortBy": [{"displayName": "Value", "desc": True}]}}, instant=True)

    def _add(self, kind, title, queries, width, height, description, more, instant=False):
        if self.x + width > 24:
            self._wrap()
        targets = [{"refId": chr(65 + i), "datasource": DATASOURCE, "expr": of_namespace(expr), "legendFormat": legend,
                    **({"instant": True, "format": "table"} if instant else {})}
                   for i, (expr, legend) in enumerate(queries)]
        self.panels.append({"id": len(self.panels) + 1, "type": kind, "title": title, "description": description,
                            "datasource": DATASOURCE, "targets": targets,
                            "gridPos": {"x": self.x, "y": self.y, "w": width, "h": height}, **more})
        self.x, self.height = self.x + width, max(self.height, height)

    def _wrap(self):
        self.x, self.y, self.height = 0, self.y + self.height, 0

    def json(self):
        return {
            "uid": self.uid, "title": self.title, "description": self.description, "tags": ["ensemble"], "editable": True,
            "schemaVersion": 39, "version": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "",
            "graphTooltip": 1, "panels": self.panels, "annotations": {"list": []},
            "links": [{"type": "dashboards", "title": "Ensemble", "tags": ["ensemble"], "asDropdown": True, "includeVars": True, "keepTime": True}],
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0},
                # Without a cluster there is no such label, which "all" matches as well.
                {"name": "namespace", "type": "query", "datasource": DATASOURCE, "query": "label_values(ensemble_build_info, namespace)",
                 "includeAll": True, "allValue": ".*", "multi": True, "current": {"text": ["All"], "value": ["$__all"]}, "refresh": 2, "hide": 0},
            ]},
        }


def of_namespace(expr):
    """Each of our metrics of the chosen namespaces alone: several installations may be in one Prometheus."""
    expr = re.sub(r"(\bensemble_[a-z0-9_]+)(?![a-z0-9_{])", r"\1{}", expr)
    return re.sub(r"(\bensemble_[a-z0-9_]+)\{", r'\1{namespace=~"$namespace",', expr).replace(",}", "}")


def quantiles(metric, selector, by=""):
    keep = f"le, {by}" if by else "le"
    name = f"{{{{{by}}}}} " if by else ""
    return [(f"histogram_quantile({q}, sum by ({keep}) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))", f"{name}p{int(q * 100)}")
            for q in (0.5, 0.95, 0.99)]


def rate(metric, selector="", by=""):
    inner = f"rate({metric}{{{selector}}}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


# What waits for an answer on purpose does not belong into response times.
LONG = 'route!~".*/(pend|stream|events|leases|output)"'


def red(board, service):
    own = f'service="{service}"'
    ok = [{"color": "green", "value": None}, {"color": "orange", "value": 0.001}, {"color": "red", "value": 0.01}]
    if service == "edge-proxy":
        count, label = "ensemble_edge_request_duration_seconds", "to"
        failed, times = 'status="5xx"', own
    else:
        count, label = "ensemble_http_request_duration_seconds", "route"
        failed, times = 'status=~"5.."', f"{own}, {LONG}"
    board.row("Requests")
    board.stat("Replicas", f'count(up{{{own}}} == 1) or count(ensemble_build_info{{{own}}})')
    board.stat("Requests / s", rate(f"{count}_count", own), "reqps")
    failing = rate(f"{count}_count", f"{own}, {failed}")
    board.stat("Failures", f"({failing} or vector(0)) / {rate(f'{count}_count', own)}", "percentunit",
               description="Answers 5xx of all.", steps=ok)
    board.stat("p99", f"histogram_quantile(0.99, sum by (le) (rate({count}_bucket{{{times}}}[$__rate_interval])))", "s")
    board.stat("In flight", f"sum(ensemble_http_requests_in_flight{{{own}}})",
               description="Requests not answered to the last byte: streams and long-polls among them.")
    board.stat("Version", f'count by (version) (ensemble_build_info{{{own}}})', description="How many replicas run each version.")
    board.graph("Rate by status", [(rate(f"{count}_count", own, "status"), "{{status}}")], "reqps", stack=True)
    board.graph("Response times", quantiles(count, times), "s", description="To the head of the answer, without streams and long-polls.")
    board.graph(f"p99 by {label}", [(f"histogram_quantile(0.99, sum by (le, {label}) (rate({count}_bucket{{{times}}}[$__rate_interval])))", f"{{{{{label}}}}}")], "s")
    board.table(f"Busiest, by {label}", f"topk(15, sum by ({label}, status) (rate({count}_count{{{own}}}[$__range])))", unit="reqps")
    board.table("Failures", f"topk(15, sum by ({label}, status) (rate({count}_count{{{own}, {failed}}}[$__range])) > 0)", unit="reqps")


def database(board, service):
    own = f'service="{service}"'
    board.row("Database")
    board.graph("Connections in use", [(f"sum by (pool) (ensemble_db_pool_connections{{{own}, state=\"used\"}}) / sum by (pool) (ensemble_db_pool_limit{{{own}}})", "{{pool}}")],
                "percentunit", 6, limits=[{"color": "red", "value": 0.9}])
    board.graph("Waiting for a connection", quantiles("ensemble_db_pool_wait_seconds", own)
                + [(f"sum(ensemble_db_pool_waiting{{{own}}})", "callers that wait")], "s", 6)
    board.graph("Operations / s", [(rate("ensemble_db_operation_duration_seconds_count", own, "outcome"), "{{outcome}}")], "ops", 6, stack=True)
    board.graph("Wake-ups", [(f"min(ensemble_wake_connected{{{own}}})", "connected"), (f"sum(ensemble_wake_topics{{{own}}})", "waited for")], "short", 6,
                description="1: wake-ups of other replicas arrive. 0: the sweep covers, within 5 s.")
    board.graph("p95 by operation", [(f"histogram_quantile(0.95, sum by (le, operation) (rate(ensemble_db_operation_duration_seconds_bucket{{{own}}}[$__rate_interval])))", "{{operation}}")], "s", 12)
    board.table("Operations", f"topk(20, sum by (operation, outcome) (rate(ensemble_db_operation_duration_seconds_count{{{own}}}[$__range])))", unit="ops")


def process(board, service):
    own = f'service="{service}"'
    board.row("Process")
    board.graph("Processor", [(f"sum by (instance) (rate(ensemble_process_cpu_seconds_total{{{own}}}[$__rate_interval]))", "{{instance}}")], "short", 6, description="Cores.")
    board.graph("Memory", [(f"sum by (instance) (ensemble_process_resident_memory_bytes{{{own}}})", "{{instance}}")], "bytes", 6)
    board.graph("Files", [(f"max by (instance) (ensemble_process_open_fds{{{own}}} / ensemble_process_max_fds{{{own}}})", "{{instance}}")], "percentunit", 6)
    board.graph("Spans", [(rate("ensemble_spans_sent_total", own), "sent"), (rate("ensemble_spans_lost_total", own), "lost")], "ops", 6,
                description="Lost spans cost nothing but the trace.")


def edge(board):
    board.row("Edge")
    board.graph("Connections of clients", [("sum by (instance) (ensemble_edge_connections)", "{{instance}}")])
    board.graph("Rate by service", [(rate("ensemble_edge_request_duration_seconds_count", "", "to"), "{{to}}")], "reqps", stack=True)
    board.graph("Failures by service", [(rate("ensemble_edge_request_duration_seconds_count", 'status="5xx"', "to"), "{{to}}")], "reqps")


def voice(board):
    board.row("Voice")
    board.stat("Live sessions", "max(ensemble_voice_live_sessions)")
    board.stat("Texts that wait", "max(ensemble_voice_queued_texts)")
    board.stat("Agents sent for again / h", "sum(increase(ensemble_voice_agent_redispatches_total[1h]))")
    board.graph("Starts", [(rate("ensemble_voice_starts_total", "", "outcome"), "{{outcome}}")], "ops", stack=True)
    board.graph("Time to the agent", quantiles("ensemble_voice_time_to_agent_seconds", ""), "s")
    board.graph("Time to person and agent together", quantiles("ensemble_voice_time_to_active_seconds", ""), "s")
    board.graph("Ends", [(rate("ensemble_voice_ends_total", "", "reason"), "{{reason}}")], "ops", stack=True)
    board.graph("Deliveries to agents", [(rate("ensemble_voice_deliveries_total", "", "kind, result"), "{{kind}} {{result}}")], "ops")
    board.graph("Calls to LiveKit", [(rate("ensemble_voice_livekit_call_duration_seconds_count", "", "method, result"), "{{method}} {{result}}")], "ops")
    board.graph("p95 of calls to LiveKit", [("histogram_quantile(0.95, sum by (le, method) (rate(ensemble_voice_livekit_call_duration_seconds_bucket[$__rate_interval])))", "{{method}}")], "s")
    board.graph("Webhooks of LiveKit", [(rate("ensemble_voice_webhooks_total", "", "result"), "{{result}}")], "ops")
    board.graph("Webhooks to endpoints", [(rate("ensemble_voice_webhook_deliveries_total", "", "endpoint, outcome"), "{{endpoint}} {{outcome}}")], "ops",
                description="later: not taken, and tried again. expired: dropped.")
    board.graph("Webhooks that wait", [("max by (endpoint) (ensemble_voice_webhook_deliveries_waiting)", "{{endpoint}}"),
                                       ("max by (endpoint) (ensemble_voice_webhook_oldest_seconds)", "{{endpoint}}, oldest in s")])
    board.graph("Events from agents", [(rate("ensemble_voice_agent_events_total", "", "type"), "{{type}}")], "ops")


def voice_agents():
    board = Board("ensemble-voice-agent", "Ensemble / voice-agent", "Who talks with people: conversations, load, failures, and how long people wait.")
    board.row("Agents")
    board.stat("Agents", "count(ensemble_voice_agent_healthy)")
    board.stat("That take conversations", "sum(ensemble_voice_agent_healthy)")
    board.stat("Conversations", "sum(ensemble_voice_agent_jobs)")
    board.stat("Of those they take", "sum(ensemble_voice_agent_jobs) / sum(ensemble_voice_agent_jobs_max)", "percentunit",
               steps=[{"color": "green", "value": None}, {"color": "orange", "value": 0.7}, {"color": "red", "value": 0.9}])
    board.stat("Died / h", "sum(increase(ensemble_voice_agents_silent_total[1h]))", description="Replaced because they had fallen silent.")
    board.stat("Starts without an agent / h", 'sum(increase(ensemble_voice_starts_total{outcome="agent_unavailable"}[1h]))')
    board.graph("Conversations", [("sum by (instance) (ensemble_voice_agent_jobs)", "{{instance}}"), ("sum(ensemble_voice_agent_jobs_max)", "all that they take")])
    board.graph("Load", [("max by (instance) (ensemble_voice_agent_load)", "{{instance}}"), ("min(ensemble_voice_agent_load_max)", "none is taken above")],
                "percentunit", description="The load that agents report to LiveKit, which chooses an agent by it.")
    board.graph("Conversations that began", [(rate("ensemble_voice_agent_jobs_started_total"), "began"), (rate("ensemble_voice_agent_jobs_failed_total"), "did not start")], "ops")
    board.row("What people notice")
    board.graph("Time to the agent", quantiles("ensemble_voice_time_to_agent_seconds", ""), "s")
    board.graph("Agents sent for again", [(rate("ensemble_voice_agent_redispatches_total"), "all"), (rate("ensemble_voice_agents_silent_total"), "because one had died")], "ops")
    board.graph("Events from agents", [(rate("ensemble_voice_agent_events_total", "", "type"), "{{type}}")], "ops", description="error: a model that is missing or fails.")
    board.graph("Calls of tools", [(rate("ensemble_voice_tool_calls_total", "", "tool"), "{{tool}}")], "ops")
    return board


def sessions(board):
    board.row("Messages")
    board.graph("Messages committed / s", [(rate("ensemble_append_batch_messages_sum"), "messages"), (rate("ensemble_append_batch_messages_count"), "commits")], "ops", 6)
    board.graph("Messages in one commit", quantiles("ensemble_append_batch_messages", ""), "short", 6,
                description="Large under load is well: what waits is committed together.")
    board.graph("Time until the writer takes an append", quantiles("ensemble_append_wait_seconds", ""), "s", 6)
    board.graph("Appends that wait", [("sum by (instance) (ensemble_append_queue_depth)", "{{instance}}"), (rate("ensemble_append_refused_total"), "refused / s")], "short", 6)


def runs(board):
    board.row("Runs")
    board.stat("Unfinished runs", 'max(ensemble_orchestrator_unfinished{what="runs"})')
    board.stat("Tasks that could run", 'max(ensemble_orchestrator_unfinished{what="tasks_ready"})')
    board.stat("Tasks at work", 'max(ensemble_orchestrator_unfinished{what="tasks_running"})')
    board.stat("Leases held", 'max(ensemble_orchestrator_unfinished{what="leases"})')
    board.stat("Runners that wait", "sum(ensemble_lease_runners_waiting)")
    board.stat("Leases / min", "sum(rate(ensemble_leases_granted_total[5m])) * 60")
    board.graph("From wake-up to lease", quantiles("ensemble_lease_wake_to_grant_seconds", ""), "s", limits=[{"color": "red", "value": 0.05}])
    board.graph("Time to decide on leases", quantiles("ensemble_lease_grant_seconds", ""), "s")
    board.graph("Finished attempts", [(rate("ensemble_lease_finishes_total", "", "status"), "{{status}}")], "ops", stack=True)


OWN = {"edge-proxy": edge, "session-store": sessions, "orchestrator": runs, "voice-gateway": voice}


def whole():
    board = Board("ensemble", "Ensemble", "Is it well? What people get, service by service, and what is about to be short.")
    count = "ensemble_edge_request_duration_seconds"
    board.row("What people get, at the edge")
    board.stat("Requests / s", rate(f"{count}_count"), "reqps")
    failed = rate(f"{count}_count", 'status="5xx"')
    failing = f"({failed} or vector(0)) / {rate(f'{count}_count')}"
    board.stat("Failures", failing, "percentunit",
               steps=[{"color": "green", "value": None}, {"color": "orange", "value": 0.001}, {"color": "red", "value": 0.01}])
    board.stat("p50", f"histogram_quantile(0.5, sum by (le) (rate({count}_bucket[$__rate_interval])))", "s")
    board.stat("Connections", "sum(ensemble_edge_connections)")
    board.stat("Replicas", "count(ensemble_build_info)")
    board.stat("Versions", "count(count by (version, commit) (ensemble_build_info))", description="More than one: an upgrade is under way, or stuck.")
    board.graph("Rate by service", [(rate(f"{count}_count", "", "to"), "{{to}}")], "reqps", stack=True)
    board.graph("Failures by service", [(rate(f"{count}_count", 'status="5xx"', "to"), "{{to}}")], "reqps")
    board.graph("Refused by service (4xx)", [(rate(f"{count}_count", 'status="4xx"', "to"), "{{to}}")], "reqps")
    board.row("Services")
    http = "ensemble_http_request_duration_seconds"
    board.graph("p99 by service", [(f"histogram_quantile(0.99, sum by (le, service) (rate({http}_bucket{{{LONG}}}[$__rate_interval])))", "{{service}}")], "s",
                description="Without streams and long-polls.")
    board.graph("Requests in flight", [("sum by (service) (ensemble_http_requests_in_flight)", "{{service}}")])
    board.graph("Internal calls", [(rate(f"{http}_count", 'route=~"ensemble[.].*"', "route"), "{{route}}")], "reqps")
    board.row("What may run short")
    board.graph("Database connections in use", [("sum by (service) (ensemble_db_pool_connections{state=\"used\"}) / sum by (service) (ensemble_db_pool_limit)", "{{service}}")],
                "percentunit", limits=[{"color": "red", "value": 0.9}])
    board.graph("p95 of database operations", [("histogram_quantile(0.95, sum by (le, service) (rate(ensemble_db_operation_duration_seconds_bucket[$__rate_interval])))", "{{service}}")], "s")
    board.graph("Processor", [("sum by (service) (rate(ensemble_process_cpu_seconds_total[$__rate_interval]))", "{{service}}")])
    board.graph("Stored by all accounts", [("max by (service) (ensemble_account_stored_bytes_sum)", "{{service}}")], "bytes",
                description="Contents that accounts have stored, measured every ten minutes, without indexes.")
    board.graph("Stored by one account", [("max by (service) (ensemble_account_stored_largest_bytes)", "{{service}} largest"),
                ("max by (service) (histogram_quantile(0.5, ensemble_account_stored_bytes_bucket))", "{{service}} p50")], "bytes")
    board.graph("Removed", [("sum by (service, what) (rate(ensemble_removed_rows_total[$__rate_interval]))", "{{service}} {{what}}")],
                description="Rows of what was deleted, or is not kept any longer.")
    board.graph("Memory", [("sum by (service) (ensemble_process_resident_memory_bytes)", "{{service}}")], "bytes")
    board.graph("Files", [("max by (service) (ensemble_process_open_fds / ensemble_process_max_fds)", "{{service}}")], "percentunit")
    board.stat("Newest backup", "time() - max(ensemble_backup_last_success_timestamp_seconds or kube_cronjob_status_last_successful_time{cronjob=~\".*ensemble.*-backup\"})", "s",
               description="How old it is: of the profile `backup`, or of the chart's CronJob by kube-state-metrics.")
    board.graph("Spans that were lost", [(rate("ensemble_spans_lost_total", "", "service"), "{{service}}")], "ops")
    return board


def boards():
    yield whole()
    for service in SERVICES:
        board = Board(f"ensemble-{service}", f"Ensemble / {service}", f"The service {service}: requests, its own work, its database, its processes.")
        red(board, service)
        if service in OWN:
            OWN[service](board)
        if service != "edge-proxy":
            database(board, service)
        process(board, service)
        yield board
    yield voice_agents()


def main():
    stale = []
    for board in boards():
        path, text = HERE / f"{board.uid}.json", json.dumps(board.json(), indent=1) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"stale: {', '.join(stale)}; run deploy/grafana/dashboards.py")


if __name__ == "__main__":
    main()
