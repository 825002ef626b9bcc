// A made-up session, message by message as agents and people write them: what the gallery shows when it is given nothing else.

const text = (part: number, said: string) => ({ type: "text", turnId: "t", part, text: said });
const tool = (id: string, more: object) => ({ type: "tool_call", toolCallId: id, turnId: "t", ...more });
const change = {
  type: "diff",
  path: "/home/ann/work/ensemble/services/edge-proxy/src/limits.rs",
  oldText: "fn quota(limit: NonZeroU32) -> Quota {\n    Quota::per_minute(limit)\n}\n",
  newText:
    "fn quota(limit: NonZeroU32) -> Quota {\n    // Without a burst the first request would wait.\n    Quota::per_minute(limit).allow_burst(limit)\n}\n",
};
const once = [
  { optionId: "yes", name: "Allow once", kind: "allow_once" },
  { optionId: "no", name: "Deny", kind: "reject_once" },
];

export const requests: Record<string, object[]> = {
  permission: [
    {
      type: "permission",
      requestId: "r1",
      title: "Run cargo test -p ensemble-web",
      detail: "cargo test -p ensemble-web --all-features 2>&1 | tail -40",
      options: [once[0], { optionId: "all", name: "Always allow cargo test in this session", kind: "allow_always" }, once[1]],
    },
    { type: "permission", requestId: "r4", title: "Run ls", detail: "ls", options: once },
  ],
  edit: [
    {
      type: "permission",
      requestId: "r5",
      title: "Edit services/edge-proxy/src/limits.rs",
      detail: JSON.stringify(change),
      content: [change],
      options: once,
    },
  ],
  question: [
    {
      type: "question",
      requestId: "r3",
      questions: [
        {
          id: "q",
          header: "Database",
          text: "Which database should the tests use?",
          options: [
            { label: "SQLite", description: "Fast, one file, nothing to install" },
            { label: "PostgreSQL", description: "What production uses" },
          ],
        },
      ],
    },
  ],
  none: [],
};

export const session: object[] = [
  {
    type: "prompt",
    text: "The rate limiter refuses the first request after a restart. Find out why and mend it, with a test.",
    when: "next",
    localId: "p1",
  },
  { type: "receipt", commandId: "p1", key: "k", outcome: "done" },
  { type: "turn", turnId: "t", state: "started", cause: "prompt", promptId: "p1" },
  { type: "thought", turnId: "t", part: 0, text: "I should look at the limiter first." },
  text(1, "I'll look at how the counters are made, then reproduce it in a test."),
  tool("a", {
    title: "Read services/edge-proxy/src/limits.rs",
    kind: "read",
    status: "completed",
    locations: [{ path: "/w/limits.rs", line: 40 }],
  }),
  tool("b", {
    title: 'rg -n "Quota::" services crates',
    kind: "execute",
    status: "completed",
    content: [
      {
        type: "terminal",
        terminalId: "x",
        output: "\u001b[32mservices/edge-proxy/src/limits.rs\u001b[0m:88: Quota::per_minute(n)\n",
      },
    ],
  }),
  text(
    4,
    "The cause: `Quota::per_minute` starts **empty** when the *burst* is not set.\n\n1. The limiter is made at start.\n2. It has no burst, so the first request waits.\n\n" +
      "```rust\nlet quota = Quota::per_minute(limit)\n    .allow_burst(limit);\n```\n\n| Setting | Before | After |\n|---|---|---|\n| burst | 1 | `limit` |\n" +
      "| first request | 429 | 200 |\n\n- [x] cause\n- [ ] test\n\n> A burst of the whole limit is what people expect.\n\nSee [the documentation](https://docs.rs/governor) for why.",
  ),
  {
    type: "permission",
    requestId: "r2",
    title: "Edit services/edge-proxy/src/limits.rs",
    detail: "…",
    content: [change],
    options: once,
  },
  { type: "resolved", requestId: "r2", outcome: "selected", optionId: "yes", by: "me" },
  tool("c", { title: "Edit services/edge-proxy/src/limits.rs", kind: "edit", status: "completed", content: [change] }),
  {
    type: "turn",
    turnId: "t",
    state: "ended",
    cause: "prompt",
    stopReason: "end_turn",
    usage: { inputTokens: 48_211, outputTokens: 1_204 },
    costUsd: 0.184,
  },
  { type: "error", code: "overloaded", text: "The model answered with status 529." },
  { type: "prompt", text: "Now run the tests.", when: "next", localId: "p2" },
  { type: "turn", turnId: "u", state: "started", cause: "prompt", promptId: "p2" },
  { type: "prompt", text: "And write the line in the changelog.", when: "next", localId: "p3" },
  { type: "receipt", commandId: "p3", key: "k", outcome: "queued" },
  tool("d", {
    turnId: "u",
    title: "cargo test -p ensemble-edge-proxy limits::a_first_request_after_a_restart_is_taken -- --nocapture",
    kind: "execute",
    status: "in_progress",
    part: 3,
  }),
  tool("e", { turnId: "u", title: "Fetch https://crates.io/api/v1/crates/governor", kind: "fetch", status: "failed" }),
  {
    type: "plan",
    entries: [
      { content: "Reproduce it in a test", priority: "high", status: "completed" },
      { content: "Mend the quota", priority: "high", status: "in_progress" },
      { content: "Write the line in the changelog", priority: "low", status: "pending" },
    ],
  },
  {
    type: "state",
    phase: "working",
    agent: "claude",
    mode: "ask",
    model: "sonnet",
    modes: [
      { id: "ask", name: "ask" },
      { id: "edit", name: "edit" },
      { id: "plan", name: "plan" },
    ],
    models: [
      { id: "sonnet", name: "Sonnet 4.5" },
      { id: "opus", name: "Opus 4.1" },
    ],
    steers: true,
    directory: "/home/ann/work/ensemble",
    branch: "mend-limits",
    context: { used: 48_211, size: 200_000 },
    costUsd: 0.184,
    keyEpoch: 1,
  },
];

export const frames = [{ turnId: "u", part: 4, offset: 0, text: "The tests are running. I am waiting for **the last of" }];
