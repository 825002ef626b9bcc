/** Begins a session with an agent on a machine. */
import { type FormEvent, useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { Field } from "../base/field.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { account } from "../data/account.ts";
import { draftOf, keptDraft, saveDraft } from "../data/drafts.ts";
import { textOf } from "../data/failure.ts";
import { machines, showMachines } from "../data/machines.ts";
import { offersOf, recentDirectories, start, type Wanted } from "../data/start.ts";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";

const MODES: [id: Wanted["mode"], name: string][] = [
  ["ask", "Ask first"], ["edit", "Edit without asking, ask for the rest"], ["plan", "Plan only"], ["bypass", "Do everything without asking"],
];

/** The first prompt is kept as that of a session that does not exist. */
const DRAFT = "start";

export function Start() {
  const { rows, isLoaded, error: listError } = useStore(machines);
  const me = useStore(account);
  const [, go] = useLocation();
  useTitle("New session");
  useEffect(showMachines, []);
  const usable = useMemo(() => rows.filter((row) => row.online), [rows]);
  const [chosen, setChosen] = useState<string>();
  const machine = usable.find((row) => row.id === chosen) ?? usable[0];
  const offers = offersOf(machine);
  const offered = offers.filter((one) => one.offered);
  const [provider, setProvider] = useState<string>();
  const agent = offered.find((one) => one.provider === provider)?.provider ?? offered[0]?.provider;
  const recent = useMemo(() => recentDirectories(machine?.id), [machine?.id]);
  const [directory, setDirectory] = useState<string>();
  const where = directory ?? recent[0] ?? "";
  const [mode, setMode] = useState<Wanted["mode"]>("ask");
  const [prompt, setPrompt] = useState(() => draftOf(DRAFT) ?? "");
  useEffect(() => {
    if (draftOf(DRAFT) === undefined) void keptDraft(DRAFT).then((kept) => setPrompt((typed) => typed || kept));
  }, []);
  const write = (text: string) => {
    setPrompt(text);
    saveDraft(DRAFT, text);
  };
  const [said, setSaid] = useState<string>();
  const [error, setError] = useState<string>();
  const stop = useRef<AbortController>(undefined);
  useEffect(() => () => stop.current?.abort(), []);

  const submitted = (event: FormEvent) => {
    event.preventDefault();
    if (!machine || !agent) return;
    const controller = new AbortController();
    stop.current = controller;
    setError(undefined);
    setSaid("Asking the machine…");
    const waiting = (reason: string | undefined) => setSaid(reason ? `Waiting: ${oneLine(reason, 120)}` : "The machine has not started it yet…");
    start({ machine: machine.id, directory: where.trim(), provider: agent, mode, prompt }, waiting, controller.signal).then(
      (id) => {
        saveDraft(DRAFT, "");
        go(paths.session(id));
      },
      (caught: unknown) => {
        if (!controller.signal.aborted) setError(textOf(caught));
        setSaid(undefined);
      },
    );
  };

  return (
    <div className="page">
      <div className="inner narrow">
        <h1>New session</h1>
        {listError !== undefined && <p className="banner bad" role="alert">{listError}</p>}
        {isLoaded && usable.length === 0 && (
          <div className="empty">
            <h2>No machine is ready to start one</h2>
            <p>A machine starts sessions for you while its runner is online. On the machine:</p>
            <pre>ensemble runner install</pre>
            <p>Or start an agent in a terminal there: it appears here as well.</p>
          </div>
        )}
        {machine && (
          <form className="stack" onSubmit={submitted}>
            <label className="field">
              <span>Machine</span>
              <select className="select" value={machine.id} onChange={(event) => setChosen(event.target.value)}>
                {usable.map((row) => <option key={row.id} value={row.id}>{oneLine(row.name, 60)}</option>)}
              </select>
            </label>
            <Field name="Directory" hint="A folder on that machine; ~ is its user's home.">{(named) => (
              <input {...named} className="input mono" value={where} required pattern="(/|~/|~$).*" title="The path of a folder on that machine, from / or from ~/ on" placeholder="~/project" list="recent" autoComplete="off" spellCheck={false}
                onChange={(event) => setDirectory(event.target.value)} />
            )}</Field>
            <datalist id="recent">{recent.map((path) => <option key={path} value={path} />)}</datalist>
            <div className="pair">
              <label className="field">
                <span>Agent</span>
                <select className="select" value={agent ?? ""} onChange={(event) => setProvider(event.target.value)}>
                  {offers.map((one) => (
                    <option key={one.provider} value={one.provider} disabled={!one.offered}>
                      {oneLine(one.provider, 40)}{one.offered ? "" : ` (${oneLine(one.reason ?? "not there", 60)})`}
                    </option>
                  ))}
                </select>
              </label>
              <label className="field">
                <span>What it may do</span>
                <select className="select" value={mode} onChange={(event) => setMode(event.target.value as Wanted["mode"])}>
                  {MODES.filter(([id]) => id !== "bypass" || (me.state === "ready" && me.role === "primary")).map(([id, name]) => <option key={id} value={id}>{name}</option>)}
                </select>
              </label>
            </div>
            <label className="field">
              <span>First prompt</span>
              <textarea className="input" rows={5} value={prompt} maxLength={600_000} dir="auto" onChange={(event) => write(event.target.value)} />
            </label>
            {!agent && <p className="muted" role="status">{offers.length > 0 ? "No agent can be started on this machine: the list of agents says why." : "The machine has not said yet which agents it has."}</p>}
            {error !== undefined && <p className="error-text" role="alert">{error}</p>}
            <div className="actions">
              <button type="submit" className="button primary" disabled={said !== undefined || !agent}>Start</button>
              {said !== undefined && <span className="soft" role="status">{said}</span>}
            </div>
          </form>
        )}
      </div>
    </div>
  );
}
