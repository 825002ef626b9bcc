/** Writes a plan: it is checked while a person types, and drawn before it is sent. */
import { type FormEvent, useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { useAttempt } from "../base/attempt.ts";
import { Confirm } from "../base/confirm.tsx";
import { Field } from "../base/field.tsx";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { stillToAsk, type Work } from "../data/agreed.ts";
import { keptDraft, saveDraft } from "../data/drafts.ts";
import { machines, showMachines } from "../data/machines.ts";
import { type PlannedTask, submitPlan, type Task } from "../data/runs.ts";
import { paths } from "../shell/route.ts";
import { oneLine, visible } from "../text/visible.ts";
import { Graph, MOST_DRAWN } from "./graph.tsx";
import { Needed } from "./needed.tsx";
import type { Given, Read } from "./plan.ts";

const DRAFT = "plan";
/** A plan is checked this many milliseconds after the last key. */
const REST_MS = 250;
const HINT = (
    <>
        YAML, as <code>ensemble run</code> takes it. The server can read the prompts, except those of tasks with{" "}
        <code>session: true</code>.
    </>
);
const EXAMPLE = `title: Review this project
defaults:
  provider: claude
  workingDirectory: /home/me/project
tasks:
  - key: look
    prompt: What is this project?
  - key: improve
    dependsOn: [look]
    prompt: |
      Improve it: {{tasks.look.output}}
`;

const workOf = ({ turn, machineId, workingDirectory, permission }: PlannedTask): Work => ({
    machine: turn?.machineId ?? machineId ?? undefined,
    directory: turn?.workingDirectory ?? workingDirectory ?? "",
    isBypass: (turn?.mode ?? permission) === "bypass",
});

/** Places that the question names at most. */
const MOST_NAMED = 20;

export function NewPlan() {
    /** What a person has to agree to first. */
    const [asked, setAsked] = useState<readonly Work[]>([]);
    const [text, setText] = useState("");
    const [values, setValues] = useState<Readonly<Record<string, string>>>({});
    const [files, setFiles] = useState<Readonly<Record<string, string>>>({});
    const { rows, hidden } = useStore(machines);
    useEffect(showMachines, []);
    const given = useMemo<Given>(
        () => ({ values, files, machines: rows.map(({ id, ref, given }) => ({ id, ref, name: given })), hidden }),
        [values, files, rows, hidden],
    );
    const [read, setRead] = useState<{ of: string; with: Given; is: Read }>();
    const [isBusy, setBusy] = useState(false);
    const [, go] = useLocation();
    const { error, run } = useAttempt(setBusy);
    useTitle("New run");
    useEffect(() => void keptDraft(DRAFT).then((kept) => setText((typed) => typed || kept)), []);
    useEffect(() => {
        let isGone = false;
        const timer = setTimeout(() => {
            if (text.trim() === "") return setRead(undefined);
            void import("./plan.ts").then(({ readPlan }) => {
                if (!isGone) setRead({ of: text, with: given, is: readPlan(text, given) });
            });
        }, REST_MS);
        return () => {
            isGone = true;
            clearTimeout(timer);
        };
    }, [text, given]);
    const write = (typed: string) => {
        setText(typed);
        setAsked([]);
        saveDraft(DRAFT, typed);
    };
    const plan = read?.is.error === undefined ? read?.is : undefined;
    const isNew = read?.of === text && read.with === given;
    const begin = (agreed: readonly Work[]) => {
        if (!plan || !isNew) return;
        run(async () => {
            const open = await stillToAsk(plan.body.tasks.map(workOf), agreed);
            setAsked(open);
            if (open.length > 0) return;
            const id = await submitPlan(plan.body);
            write("");
            go(paths.run(id));
        });
    };
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        begin([]);
    };
    const nameOf = (id: string | undefined) => {
        const name = rows.find((row) => row.id === id)?.name ?? id;
        return name === undefined ? "any of your machines" : oneLine(name, 60);
    };
    return (
        <div className="page">
            <div className="inner">
                <div className="heading">
                    <Link href={paths.runs} className="icon-button" aria-label="All runs">
                        <Icon name="back" />
                    </Link>
                    <h1>New run</h1>
                    <span className="space" />
                </div>
                <form className="stack" onSubmit={submitted}>
                    <Field name="Plan" hint={HINT}>
                        {(named) => (
                            <textarea
                                {...named}
                                className="input mono plan-text"
                                value={text}
                                rows={16}
                                spellCheck={false}
                                autoCapitalize="off"
                                placeholder={EXAMPLE}
                                maxLength={1 << 20}
                                aria-describedby={`${named["aria-describedby"]} plan-state`}
                                onChange={(event) => write(event.target.value)}
                            />
                        )}
                    </Field>
                    {read && (
                        <Needed
                            variables={read.is.variables}
                            files={read.is.files}
                            values={values}
                            chosen={files}
                            onValue={(name, value) => {
                                setValues((before) => ({ ...before, [name]: value }));
                                setAsked([]);
                            }}
                            onFile={(name, content) => {
                                setFiles((before) => ({ ...before, [name]: content }));
                                setAsked([]);
                            }}
                        />
                    )}
                    <div id="plan-state" role="status">
                        {read?.is.error !== undefined && <p className="error-text">{visible(read.is.error)}</p>}
                        {plan && (
                            <p className="soft">
                                {plan.tasks.length === 1 ? "One task." : `${plan.tasks.length.toLocaleString()} tasks.`}
                                {plan.tasks.length > MOST_DRAWN && " More than are drawn."}
                            </p>
                        )}
                    </div>
                    {plan && plan.tasks.length <= MOST_DRAWN && <Drawing tasks={plan.tasks} />}
                    {error !== undefined && (
                        <p className="error-text" role="alert">
                            {error}
                        </p>
                    )}
                    {asked.length > 0 && (
                        <Confirm label="Start it there">
                            <p>This browser has not used these before. Are they what you mean?</p>
                            <ul>
                                {asked.slice(0, MOST_NAMED).map(({ machine, directory, isBypass }) => (
                                    <li key={`${machine} ${directory}`}>
                                        {nameOf(machine)}, {oneLine(directory, 120)}
                                        {isBypass && ": the agent does everything there without asking"}
                                    </li>
                                ))}
                                {asked.length > MOST_NAMED && <li>and {asked.length - MOST_NAMED} more</li>}
                            </ul>
                            <div className="actions">
                                <button
                                    type="button"
                                    className="button danger"
                                    disabled={isBusy || !isNew}
                                    onClick={() => begin(asked)}
                                >
                                    Start it there
                                </button>
                                <button type="button" className="button plain" onClick={() => setAsked([])}>
                                    Cancel
                                </button>
                            </div>
                        </Confirm>
                    )}
                    <div className="actions">
                        <button type="submit" className="button primary" disabled={isBusy || !plan || !isNew}>
                            {isBusy ? "Sending…" : "Start run"}
                        </button>
                        {text === "" && (
                            <button type="button" className="button" onClick={() => write(EXAMPLE)}>
                                Start with an example
                            </button>
                        )}
                    </div>
                </form>
            </div>
        </div>
    );
}

function Drawing({ tasks }: { tasks: { id: string; title: string; dependsOn: string[] }[] }) {
    const drawn = useMemo(
        () => tasks.map((one) => ({ ...one, ref: one.id, taskKey: one.id, status: "queued", attempt: 0 }) as unknown as Task),
        [tasks],
    );
    const [chosen, setChosen] = useState<string>();
    return <Graph tasks={drawn} chosen={chosen} onChoose={setChosen} />;
}
