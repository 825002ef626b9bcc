/** Writes a plan: it is checked while one types, and drawn before it is sent. */
import { type FormEvent, useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { useAttempt } from "../base/attempt.ts";
import { Field } from "../base/field.tsx";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { keptDraft, saveDraft } from "../data/drafts.ts";
import { machines, showMachines } from "../data/machines.ts";
import { submitPlan, type Task } from "../data/runs.ts";
import { paths } from "../shell/route.ts";
import { visible } from "../text/visible.ts";
import { Graph, MOST_DRAWN } from "./graph.tsx";
import { Needed } from "./needed.tsx";
import type { Given, Read } from "./plan.ts";

const DRAFT = "plan";
/** Typing is checked when it rests, after so many milliseconds. */
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

export function NewPlan() {
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
        saveDraft(DRAFT, typed);
    };
    const plan = read?.is.error === undefined ? read?.is : undefined;
    const isNew = read?.of === text && read.with === given;
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        if (!plan || !isNew) return;
        run(async () => {
            const id = await submitPlan(plan.body);
            write("");
            go(paths.run(id));
        });
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
                            onValue={(name, value) => setValues((before) => ({ ...before, [name]: value }))}
                            onFile={(name, content) => setFiles((before) => ({ ...before, [name]: content }))}
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
