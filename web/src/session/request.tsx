/** A card for what the agent asks. It stays until the machine says that the request is closed. */
import { type KeyboardEvent, useCallback, useContext, useEffect, useId, useMemo, useRef, useState } from "react";
import { Choice } from "../base/field.tsx";
import { Icon } from "../base/icons.tsx";
import { Changes, type Diff } from "../text/changes.tsx";
import { oneLine, strict, strictLine } from "../text/visible.ts";
import { byDigit } from "./digits.ts";
import { useGuard } from "./guard.ts";
import { restOf } from "./asked.ts";
import { Directory, titleWith } from "./paths.ts";
import { type Seen, useSeen } from "./seen.ts";
import type { Answers, Permission, PermissionOption, Question, QuestionItem } from "./types.ts";
import { useDigits } from "./use-digits.ts";

/** An answer on its way: the person has chosen, and the machine has not said that it has taken it. */
export interface Pending {
    label: string;
    error?: string | undefined;
}

interface CardProps {
    /** How many requests wait behind this one. */
    behind: number;
    mayAnswer: boolean;
    pending: Pending | undefined;
    /** It is the only card of its screen. Otherwise digits count for the one that has the focus. */
    isAlone: boolean;
    /** Nothing is written in the composer. */
    isEmpty: boolean;
}

interface PermissionProps extends CardProps {
    permission: Permission;
    /** Whether this person may choose what reaches further than the request. */
    mayReach: boolean;
    /** The name of the session in a terminal. */
    sessionRef: string;
    onOption: (option: PermissionOption) => void;
}

function isRefusal(option: PermissionOption): boolean {
    return option.kind.startsWith("reject");
}

/** The machine takes anything else from the owner only. */
function isForOnce(option: PermissionOption): boolean {
    return option.kind === "allow_once" || option.kind === "reject_once";
}

export function PermissionCard({
    permission,
    behind,
    mayAnswer,
    mayReach,
    pending,
    isAlone,
    isEmpty,
    sessionRef,
    onOption,
}: PermissionProps) {
    const diffs = permission.content.filter((one) => one.type === "diff");
    // A person agrees only to what they have seen. What is cut can only be refused here, and what is folded until it was unfolded.
    const missing = diffs.reduce((sum, { cut }) => sum + (cut ?? 0), permission.cut ?? 0);
    const options = missing > 0 ? permission.options.filter(isRefusal) : permission.options;
    const [whole, setWhole] = useState<readonly boolean[]>([]);
    const isFolded = diffs.some((_, at) => whole[at] !== true);
    const [card, body, footer] = [useRef<HTMLElement>(null), useRef<HTMLDivElement>(null), useRef<HTMLElement>(null)];
    const [isOpen, setOpen] = useState(false);
    const isReady = useGuard(footer, isOpen);
    const seen = useSeen(body);
    const waits = pending !== undefined && pending.error === undefined;
    const directory = useContext(Directory);
    const title = strictLine(
        titleWith(
            permission.title,
            diffs.map(({ path }) => path),
            directory,
        ),
        300,
    );
    const choose = (digit: number) => {
        if (!mayAnswer || waits) return;
        const { allow, deny, stop, further } = byDigit(options);
        if (digit === 4 && further.length > 0) setOpen(true);
        const option = [allow, deny, stop][digit - 1];
        if (option && (isRefusal(option) || !isFolded)) onOption(option);
    };
    useDigits({ card, isAlone, isEmpty, isEndSeen: seen.isAll, choose });
    return (
        <section className="request" ref={card} tabIndex={-1} aria-label={`The agent asks: ${title}`}>
            <header>
                <Icon name="ask" />
                <bdi className="title" title={strictLine(permission.title, 300)}>
                    {title}
                </bdi>
                {behind > 0 && <span className="more">{behind} more</span>}
            </header>
            <div className="body" ref={body}>
                <div className="all">
                    {diffs.map((one, at) => (
                        <Change key={at} diff={one} at={at} setWhole={setWhole} />
                    ))}
                    {diffs.length === 0 ? (
                        <Detail text={permission.detail} />
                    ) : (
                        <Asked title={permission.title} detail={permission.detail} diffs={diffs} />
                    )}
                </div>
            </div>
            <footer ref={footer}>
                {mayAnswer && (
                    <Options
                        options={options}
                        disabled={waits}
                        isReady={isReady}
                        isSeen={!isFolded && seen.isAll}
                        isOpen={isOpen}
                        mayReach={mayReach}
                        onOpen={setOpen}
                        onOption={onOption}
                    />
                )}
                {mayAnswer && missing > 0 && (
                    <p className="cut error-text">
                        {missing.toLocaleString()} bytes do not fit here, so you can only deny it. To read and allow all of it,
                        run in a terminal: <code>ensemble attach {sessionRef}</code>
                    </p>
                )}
                {mayAnswer && missing === 0 && (isFolded || !seen.isAll) && <Unseen seen={seen} />}
                {!mayAnswer && <span className="sent">Only the owner and people whom they allow to approve can answer.</span>}
                <Sent pending={pending} />
            </footer>
        </section>
    );
}

/** Why it cannot be allowed yet. */
function Unseen({ seen }: { seen: Seen }) {
    return (
        <p className="unseen">
            {seen.left > 0 && (
                <button type="button" className="button small" onClick={seen.further}>
                    {seen.left === 1 ? "1 more line" : `${seen.left.toLocaleString()} more lines`}
                </button>
            )}
            <span>
                {seen.isAll ? "You can allow it once all changes are shown." : "You can allow it after reading to the end."}
            </span>
        </p>
    );
}

interface ChangeProps {
    diff: Diff;
    at: number;
    setWhole: (change: (before: readonly boolean[]) => readonly boolean[]) => void;
}

function Change({ diff, at, setWhole }: ChangeProps) {
    const onWhole = useCallback(
        (isWhole: boolean) => setWhole((before) => Object.assign([...before], { [at]: isWhole })),
        [at, setWhole],
    );
    return <Changes diff={diff} onWhole={onWhole} />;
}

interface OptionsProps {
    options: PermissionOption[];
    disabled: boolean;
    /** The buttons have been at their place for a while. */
    isReady: boolean;
    /** The whole request was shown. Until then it can only be refused. */
    isSeen: boolean;
    isOpen: boolean;
    mayReach: boolean;
    onOpen: (isOpen: boolean) => void;
    onOption: (option: PermissionOption) => void;
}

/** To allow and to refuse this once stand first. What reaches further is one step away. */
function Options({ options, disabled, isReady, isSeen, isOpen, mayReach, onOpen, onOption }: OptionsProps) {
    const { allow, deny, stop, further } = byDigit(options);
    const plain = [allow, deny ?? options.find(isRefusal)].filter((one) => one !== undefined);
    const first = plain.length > 0 ? plain : options.slice(0, 1);
    const others = options.filter((one) => !first.includes(one));
    const list = useRef<HTMLDivElement>(null);
    const whose = useId();
    /** What reaches further is chosen by the keyboard twice. */
    const [asked, setAsked] = useState<PermissionOption>();
    useEffect(() => {
        if (isOpen) list.current?.querySelector("button")?.focus();
    }, [isOpen]);
    const arrows = (event: KeyboardEvent) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const buttons = [...(list.current?.querySelectorAll("button") ?? [])];
        const at = buttons.findIndex((one) => one === document.activeElement);
        if (step === undefined || at < 0) return;
        event.preventDefault();
        buttons[(at + step + buttons.length) % buttons.length]?.focus();
    };
    const button = (option: PermissionOption) => {
        const key = option === allow ? "1" : option === deny ? "2" : option === stop ? "3" : undefined;
        const isAsked = asked === option;
        return (
            <button
                key={option.optionId}
                type="button"
                disabled={disabled || (!isSeen && !isRefusal(option)) || (!mayReach && !isForOnce(option))}
                aria-disabled={!isReady}
                aria-keyshortcuts={key}
                aria-describedby={mayReach || isForOnce(option) ? undefined : whose}
                className={`button ${option.kind === "allow_once" ? "primary" : isRefusal(option) ? "danger" : ""}`}
                onBlur={() => setAsked(undefined)}
                onClick={(event) => {
                    if (!isReady) return;
                    // A click by a key has no place. What keeps a rule or changes the mode is asked once more.
                    if (event.detail === 0 && further.includes(option) && !isAsked) setAsked(option);
                    else onOption(option);
                }}
            >
                {key && <kbd aria-hidden="true">{key}</kbd>}
                {isAsked ? `Enter again: ${strictLine(option.name)}` : strictLine(option.name)}
            </button>
        );
    };
    return (
        <>
            {first.map(button)}
            {others.length > 0 && (
                <button
                    type="button"
                    className="button plain more"
                    aria-expanded={isOpen}
                    aria-keyshortcuts={further.length > 0 ? "4" : undefined}
                    disabled={disabled}
                    onClick={() => onOpen(!isOpen)}
                >
                    {further.length > 0 && <kbd aria-hidden="true">4</kbd>}
                    {isOpen ? "Fewer" : `More (${others.length})`}
                </button>
            )}
            {isOpen && (
                <div className="others" ref={list} onKeyDown={arrows}>
                    {others.map(button)}
                </div>
            )}
            {!mayReach && (isOpen ? options : first).some((one) => !isForOnce(one)) && (
                <span className="sent" id={whose}>
                    More than this request is for the owner to allow.
                </span>
            )}
        </>
    );
}

/** What the agent sent, folded; what of it the changes do not say stands open. */
function Asked({ title, detail, diffs }: { title: string; detail: string; diffs: readonly Diff[] }) {
    const rest = useMemo(() => restOf(title, detail, diffs), [title, detail, diffs]);
    return (
        <>
            {rest !== "" && <Detail text={rest} />}
            <details className="asked-as">
                <summary>As the agent asked it</summary>
                <pre className="detail" tabIndex={0} role="group" aria-label="As the agent asked it">
                    {strict(detail)}
                </pre>
            </details>
        </>
    );
}

function Detail({ text }: { text: string }) {
    // The whole of it, as the host has made it visible. The host limits its size.
    return (
        <pre className="detail" tabIndex={0} role="group" aria-label="What the agent wants to do">
            {strict(text)}
        </pre>
    );
}

function Sent({ pending }: { pending: Pending | undefined }) {
    if (!pending) return null;
    if (pending.error)
        return (
            <span className="error-text" role="alert">
                {pending.error}
            </span>
        );
    return (
        <span className="sent" role="status">
            “{oneLine(pending.label, 40)}”: waiting for the machine
        </span>
    );
}

interface QuestionProps extends CardProps {
    question: Question;
    /** Nothing: the person does not answer. */
    onAnswers: (answers: Answers | undefined) => void;
}

export function QuestionCard({ question, behind, mayAnswer, pending, isAlone, isEmpty, onAnswers }: QuestionProps) {
    const [chosen, setChosen] = useState<Answers>({});
    const [card, body, footer] = [useRef<HTMLFormElement>(null), useRef<HTMLDivElement>(null), useRef<HTMLElement>(null)];
    const isReady = useGuard(footer);
    const seen = useSeen(body);
    const waits = pending !== undefined && pending.error === undefined;
    const isComplete = question.questions.every((one) => (chosen[one.id] ?? []).some((text) => text.trim() !== ""));
    const set = (id: string, texts: string[]) => setChosen((before) => ({ ...before, [id]: texts }));
    const choose = (digit: number) => {
        const [only, another] = question.questions;
        const label = only?.options?.[digit - 1]?.label;
        // With several questions a digit would not say which of them it is for.
        if (!mayAnswer || waits || !only || another || label === undefined) return;
        setChosen((before) => ({ ...before, [only.id]: toggled(only, before[only.id] ?? [], label) }));
    };
    useDigits({ card, isAlone, isEmpty, isEndSeen: seen.isAll, choose });
    return (
        <form
            className="request"
            ref={card}
            tabIndex={-1}
            aria-label="The agent asks a question"
            onSubmit={(event) => {
                event.preventDefault();
                if (isComplete && isReady) onAnswers(chosen);
            }}
        >
            <header>
                <Icon name="question" />
                <span className="title">
                    {question.questions.length === 1 ? "A question" : `${question.questions.length} questions`}
                </span>
                {behind > 0 && <span className="more">{behind} more</span>}
            </header>
            <div className="body" ref={body}>
                <div className="all">
                    {question.questions.map((one) => (
                        <One
                            key={one.id}
                            item={one}
                            chosen={chosen[one.id] ?? []}
                            disabled={!mayAnswer || waits}
                            onChange={(texts) => set(one.id, texts)}
                        />
                    ))}
                </div>
            </div>
            <footer ref={footer}>
                {mayAnswer && (
                    <>
                        <button
                            type="submit"
                            className="button primary"
                            disabled={!isComplete || waits}
                            aria-disabled={!isReady}
                        >
                            Answer
                        </button>
                        <button
                            type="button"
                            className="button"
                            disabled={waits}
                            aria-disabled={!isReady}
                            onClick={() => isReady && onAnswers(undefined)}
                        >
                            Do not answer
                        </button>
                    </>
                )}
                {!mayAnswer && <span className="sent">Only the owner and people whom they allow to approve can answer.</span>}
                <Sent pending={pending} />
            </footer>
        </form>
    );
}

/** What is chosen once this option is, or is no longer. */
function toggled({ multiple }: QuestionItem, chosen: readonly string[], label: string): string[] {
    if (!multiple) return [label];
    return chosen.includes(label) ? chosen.filter((text) => text !== label) : [...chosen, label];
}

interface OneProps {
    item: QuestionItem;
    chosen: string[];
    disabled: boolean;
    onChange: (texts: string[]) => void;
}

function One({ item, chosen, disabled, onChange }: OneProps) {
    const labels = item.options?.map((option) => option.label) ?? [];
    const own = chosen.find((text) => !labels.includes(text)) ?? "";
    const write = (text: string) => {
        const kept = item.multiple ? chosen.filter((one) => labels.includes(one)) : [];
        onChange(text === "" ? kept : [...kept, text]);
    };
    return (
        <fieldset className="question" disabled={disabled}>
            <legend>
                {item.header ? <span className="tag">{strictLine(item.header, 40)}</span> : null} <bdi>{strict(item.text)}</bdi>
            </legend>
            {item.options?.map((option) => (
                <Choice
                    key={option.label}
                    className="choice"
                    label={strict(option.label)}
                    hint={option.description && strict(option.description)}
                    checked={chosen.includes(option.label)}
                    oneOf={item.multiple ? undefined : `question-${item.id}`}
                    onChange={() => onChange(toggled(item, chosen, option.label))}
                />
            ))}
            <input
                className="input"
                aria-label={labels.length > 0 ? "Another answer" : "Your answer"}
                value={own}
                maxLength={4_000}
                placeholder={labels.length > 0 ? "Something else" : "Your answer"}
                onChange={(event) => write(event.target.value)}
            />
        </fieldset>
    );
}

/** A request in the transcript, once it is closed or while its card stands below. */
export function AskedLine({ title, said }: { title: string; said: string }) {
    return (
        <p className="asked-line">
            <Icon name="ask" size={14} />
            <span>
                <bdi className="said">{oneLine(title, 200)}</bdi> · {said}
            </span>
        </p>
    );
}
