/** Begins a session with an agent on a machine. */
import type { Attachment } from "@ensemble/client/transcript";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { Confirm } from "../base/confirm.tsx";
import { Field } from "../base/field.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { account } from "../data/account.ts";
import { agree, notAgreed } from "../data/agreed.ts";
import { draftOf, keptDraft, saveDraft } from "../data/drafts.ts";
import { textOf } from "../data/failure.ts";
import { machines, showMachines } from "../data/machines.ts";
import { modelsOf } from "../data/models.ts";
import { offersOf, recentDirectories, start, type Wanted } from "../data/start.ts";
import { Composer } from "../session/composer.tsx";
import type { Choice, State } from "../session/types.ts";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";

const MODES: Choice[] = ["ask", "edit", "plan", "bypass"].map((id) => ({ id, name: id }));

/** What a person can choose in the composer before there is a session. */
function choices(agent: string | undefined, mode: Wanted["mode"], model: string, models: readonly Choice[]): State {
    return {
        phase: "idle",
        agent: agent ?? "the agent",
        mode,
        modes: MODES,
        commands: [],
        steers: false,
        directory: "",
        stillRunning: [],
        queue: [],
        access: [],
        keyEpoch: 1,
        does: [],
        ...(models.length > 0 ? { model, models: [{ id: "", name: "Its own model" }, ...models] } : { models: [] }),
    };
}

const Demo = lazy(() => import("../home/demo.tsx"));

/** The first prompt is kept under the name of a session that does not exist. */
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
    const [attachments, setAttachments] = useState<readonly Attachment[]>([]);
    const [models, setModels] = useState<readonly Choice[]>([]);
    const [model, setModel] = useState("");
    const machineId = machine?.id;
    useEffect(() => {
        let isGone = false;
        setModels([]);
        setModel("");
        if (machineId !== undefined && agent !== undefined)
            void modelsOf(machineId, agent).then((known) => isGone || setModels(known));
        return () => {
            isGone = true;
        };
    }, [machineId, agent]);
    const fields = useRef<HTMLFormElement>(null);
    const [said, setSaid] = useState<string>();
    /** In bypass mode the agent asks nothing later, and a machine that is new in a directory may be another one than was meant. */
    const [isAsked, setAsked] = useState(false);
    const [error, setError] = useState<string>();
    const stop = useRef<AbortController>(undefined);
    useEffect(() => () => stop.current?.abort(), []);

    const begin = (hasAgreed = false) => {
        if (!machine || !agent || said !== undefined || fields.current?.reportValidity() !== true) return;
        const wanted: Wanted = {
            machine: machine.id,
            directory: where.trim(),
            provider: agent,
            mode,
            model: model || undefined,
            prompt,
            attachments,
        };
        const controller = new AbortController();
        stop.current = controller;
        setError(undefined);
        setAsked(false);
        setSaid("Asking the machine…");
        const waiting = (reason: string | undefined) =>
            setSaid(reason ? `Waiting: ${oneLine(reason, 120)}` : "The machine has not started it yet…");
        const begun = async () => {
            const work = [{ machine: wanted.machine, directory: wanted.directory, isBypass: mode === "bypass" }];
            if (hasAgreed) await agree(work);
            else if ((await notAgreed(work)).length > 0) {
                setSaid(undefined);
                setAsked(true);
                return undefined;
            }
            return start(wanted, waiting, controller.signal);
        };
        begun().then(
            (id) => {
                if (id === undefined) return;
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
                {listError !== undefined && (
                    <p className="banner bad" role="alert">
                        {listError}
                    </p>
                )}
                {isLoaded && usable.length === 0 && (
                    <div className="empty">
                        <h2>No machine is ready to start one</h2>
                        <p>A machine starts sessions for you while its runner is online. On the machine:</p>
                        <pre>ensemble runner install</pre>
                        <p>Or start an agent in a terminal there: it appears here, too.</p>
                    </div>
                )}
                {machine && (
                    <form
                        ref={fields}
                        className="stack"
                        onSubmit={(event) => {
                            event.preventDefault();
                            begin();
                        }}
                    >
                        <label className="field">
                            <span>Machine</span>
                            <select
                                className="select"
                                value={machine.id}
                                onChange={(event) => {
                                    setChosen(event.target.value);
                                    setAsked(false);
                                }}
                            >
                                {usable.map((row) => (
                                    <option key={row.id} value={row.id}>
                                        {oneLine(row.name, 60)}
                                    </option>
                                ))}
                            </select>
                        </label>
                        <Field name="Directory" hint="A folder on that machine; ~ is its user's home.">
                            {(named) => (
                                <input
                                    {...named}
                                    className="input mono"
                                    value={where}
                                    required
                                    pattern="(/|~/|~$).*"
                                    title="The path of a folder on that machine, from / or from ~/ on"
                                    placeholder="~/project"
                                    list="recent"
                                    autoComplete="off"
                                    spellCheck={false}
                                    onChange={(event) => {
                                        setDirectory(event.target.value);
                                        setAsked(false);
                                    }}
                                />
                            )}
                        </Field>
                        <datalist id="recent">
                            {recent.map((path) => (
                                <option key={path} value={path} />
                            ))}
                        </datalist>
                        <label className="field">
                            <span>Agent</span>
                            <select
                                className="select"
                                value={agent ?? ""}
                                onChange={(event) => setProvider(event.target.value)}
                            >
                                {offers.map((one) => (
                                    <option key={one.provider} value={one.provider} disabled={!one.offered}>
                                        {oneLine(one.provider, 40)}
                                        {one.offered ? "" : ` (${oneLine(one.reason ?? "not there", 60)})`}
                                    </option>
                                ))}
                            </select>
                        </label>
                        {!agent && (
                            <p className="muted" role="status">
                                {offers.length > 0
                                    ? "No agent can start on this machine. The list of agents says why."
                                    : "The machine has not reported its agents yet."}
                            </p>
                        )}
                        {!agent && machine.does.includes("demo") && (
                            <Suspense>
                                <Demo machine={machine} isPrimary />
                            </Suspense>
                        )}
                    </form>
                )}
                {machine && (
                    <div className="first-prompt">
                        <Composer
                            state={choices(agent, mode, model, models)}
                            draft={prompt}
                            onDraft={write}
                            onPrompt={() => begin()}
                            onInterrupt={() => undefined}
                            onMode={(picked) => {
                                setMode(picked as Wanted["mode"]);
                                setAsked(false);
                            }}
                            onModel={setModel}
                            isOwner
                            mayChangeModel
                            isHosted
                            mayBypass={me.state === "ready" && me.role === "primary"}
                            attachments={attachments}
                            onAttachments={setAttachments}
                            label="First prompt"
                            button={{ text: "Start", disabled: said !== undefined || !agent }}
                        />
                        {isAsked && (
                            <Confirm label={mode === "bypass" ? "Start in bypass" : "Start there"}>
                                <p>
                                    Start {agent} on {oneLine(machine.name, 60)} in {oneLine(where.trim(), 120)}?{" "}
                                    {mode === "bypass"
                                        ? "In bypass it does everything there without asking."
                                        : "This browser has not used this machine there before."}
                                </p>
                                <div className="actions">
                                    <button
                                        type="button"
                                        className={mode === "bypass" ? "button danger" : "button"}
                                        onClick={() => begin(true)}
                                    >
                                        {mode === "bypass" ? "Start without questions" : "Start there"}
                                    </button>
                                    <button type="button" className="button plain" onClick={() => setAsked(false)}>
                                        Cancel
                                    </button>
                                </div>
                            </Confirm>
                        )}
                        {error !== undefined && (
                            <p className="error-text" role="alert">
                                {error}
                            </p>
                        )}
                        {said !== undefined && (
                            <p className="soft" role="status">
                                {said}
                            </p>
                        )}
                    </div>
                )}
            </div>
        </div>
    );
}
