/** The field to write in: queue or steer, interrupt, mode and model. */
import { type FormEvent, type KeyboardEvent, useId, useLayoutEffect, useRef, useState } from "react";
import { Icon } from "../base/icons.tsx";
import { money } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";
import type { Attachment } from "@ensemble/client/transcript";
import { fits, nameOfFile, withFiles, withText } from "./attachments.ts";
import { useGuard } from "./guard.ts";
import { modelName } from "./model-name.ts";
import type { Choice, State } from "./types.ts";

interface Props {
    state: State | undefined;
    draft: string;
    onDraft: (text: string) => void;
    onPrompt: (when: "now" | "next") => void;
    onInterrupt: () => void;
    onMode: (mode: string) => void;
    onModel: (model: string) => void;
    /** Whether this person may change mode and model. */
    isOwner: boolean;
    mayChangeModel: boolean;
    /** Only a primary device may choose `bypass`. */
    mayBypass: boolean;
    /** An agent reads it. Otherwise people do. */
    isHosted: boolean;
    attachments: readonly Attachment[];
    onAttachments: (attachments: Attachment[]) => void;
    /** The names of the field and the button, if it is not for a running session. */
    label?: string | undefined;
    button?: { text: string; disabled: boolean } | undefined;
}

/** A longer text is a file: it is not readable in a field, and would leave no room for anything else. */
const MOST_TEXT = 100_000;

const isCoarse = () => matchMedia("(pointer: coarse)").matches;

export function Composer(props: Props) {
    const { state, draft } = props;
    const field = useRef<HTMLTextAreaElement>(null);
    const name = useId();
    const isBusy = state?.phase === "working" || state?.phase === "waiting";
    const maySteer = isBusy && state?.steers === true;
    const isEmpty = draft.trim() === "" && props.attachments.length === 0;
    const [error, setError] = useState<string>();
    /** A text that was too long for the field. */
    const [tooLong, setTooLong] = useState<string>();
    const say = (text: string | undefined, refused?: string) => {
        setError(text);
        setTooLong(refused);
    };
    const add = (files: readonly File[]) => {
        say(undefined);
        withFiles(props.attachments, files).then(props.onAttachments, (caught: unknown) => say(textOf(caught)));
    };
    /** Takes the files of what was pasted or dropped; text goes its usual way. */
    const taken = (event: { preventDefault: () => void }, data: DataTransfer | null) => {
        const files = [...(data?.files ?? [])];
        if (files.length === 0) return;
        event.preventDefault();
        if (props.isHosted) add(files);
        else say("Not added: this session is for text only.");
    };
    /** What is too long is refused as a whole: a part of it would say something else. */
    const write = (text: string) => {
        if (text.length <= MOST_TEXT) {
            say(undefined);
            props.onDraft(text);
            return;
        }
        say(
            `Not taken: a prompt has at most ${MOST_TEXT.toLocaleString()} characters, and this would be ${text.length.toLocaleString()}.`,
            inserted(draft, text),
        );
    };
    const addAsFile = (text: string) => {
        try {
            props.onAttachments(withText(props.attachments, "pasted.txt", text));
            say(undefined);
        } catch (caught) {
            say(textOf(caught));
        }
    };

    useLayoutEffect(() => {
        const element = field.current;
        if (!element) return;
        element.style.height = "auto";
        element.style.height = `${element.scrollHeight}px`;
    }, [draft]);

    const send = (when: "now" | "next") => {
        if (isEmpty && !props.button) return;
        if (fits(draft, props.attachments)) props.onPrompt(when);
        else say("Not sent: text and files are too long together. Remove a file.");
    };
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        send("next");
    };
    const keyed = (event: KeyboardEvent) => {
        if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing || isCoarse()) return;
        event.preventDefault();
        send(maySteer && (event.ctrlKey || event.metaKey) ? "now" : "next");
    };
    const placeholder = !props.isHosted
        ? "Write to the others"
        : isBusy
          ? "Add to the queue"
          : state?.phase === "ended"
            ? "The session has ended"
            : `Ask ${oneLine(state?.agent ?? "the agent", 40)}`;

    return (
        <form
            className="composer"
            onSubmit={submitted}
            aria-label={
                props.label !== undefined ? "Start a session" : props.isHosted ? "Write to the agent" : "Write to the others"
            }
            onDragOver={(event) => event.preventDefault()}
            onDrop={(event) => taken(event, event.dataTransfer)}
        >
            {props.attachments.length > 0 && <Attached all={props.attachments} onChange={props.onAttachments} />}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}{" "}
                    {tooLong !== undefined && props.isHosted && (
                        <button type="button" className="button small" onClick={() => addAsFile(tooLong)}>
                            Add it as a file
                        </button>
                    )}
                </p>
            )}
            <label className="hidden-label" htmlFor={name}>
                {props.label ?? "Prompt"}
            </label>
            <textarea
                id={name}
                ref={field}
                rows={props.label === undefined ? 1 : 4}
                value={draft}
                placeholder={placeholder}
                dir="auto"
                enterKeyHint={isCoarse() ? "enter" : "send"}
                onChange={(event) => write(event.target.value)}
                onKeyDown={keyed}
                onPaste={(event) => taken(event, event.clipboardData)}
            />
            <div className="bar">
                {props.isHosted && <Files onFiles={add} />}
                {state && (
                    <>
                        <Pick
                            label="Mode"
                            value={state.mode}
                            choices={modesOf(state, props.mayBypass)}
                            disabled={!props.isOwner}
                            onPick={props.onMode}
                        />
                        <Pick
                            label="Model"
                            value={state.model ?? ""}
                            choices={modelsOf(state)}
                            disabled={!props.mayChangeModel}
                            onPick={props.onModel}
                        />
                    </>
                )}
                <Facts state={state} />
                <span className="acts">
                    {maySteer && !isEmpty && (
                        <button
                            type="button"
                            className="button small"
                            onClick={() => send("now")}
                            title="Add to the turn that is running (Ctrl+Enter)"
                        >
                            Steer
                        </button>
                    )}
                    {isBusy && <Interrupt isAlone={isEmpty} onInterrupt={props.onInterrupt} />}
                    {props.button && (
                        <button type="submit" className="button primary" disabled={props.button.disabled}>
                            {props.button.text}
                        </button>
                    )}
                    {!props.button && !(isBusy && isEmpty) && (
                        <button
                            type="submit"
                            className="send"
                            disabled={isEmpty}
                            aria-label={isBusy ? "Queue" : "Send"}
                            title={isBusy ? "Queue" : "Send"}
                        >
                            <Icon name="up" />
                        </button>
                    )}
                </span>
            </div>
        </form>
    );
}

/** Without a text it is where the arrow was, so it ignores a tap that was meant for the arrow. */
function Interrupt({ isAlone, onInterrupt }: { isAlone: boolean; onInterrupt: () => void }) {
    const button = useRef<HTMLButtonElement>(null);
    const isReady = useGuard(button, isAlone);
    return (
        <button
            ref={button}
            type="button"
            className="send stop"
            aria-disabled={!isReady}
            onClick={() => isReady && onInterrupt()}
            aria-label="Interrupt"
            title="Interrupt"
        >
            <Icon name="stop" />
        </button>
    );
}

/** What was put into a text. */
function inserted(before: string, after: string): string {
    let [start, end] = [0, 0];
    while (start < before.length && before[start] === after[start]) start++;
    while (end < before.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
    return after.slice(start, after.length - end);
}

function Attached({ all, onChange }: { all: readonly Attachment[]; onChange: (all: Attachment[]) => void }) {
    const pictures = all.filter((one) => one.type === "image");
    return (
        <ul className="pictures" aria-label="Files">
            {all.map((one, at) => {
                const name =
                    one.type === "image"
                        ? `picture ${pictures.indexOf(one) + 1}`
                        : one.type === "resource"
                          ? oneLine(nameOfFile(one.resource.uri), 60)
                          : "";
                return (
                    <li key={at}>
                        {one.type === "image" ? (
                            <img src={`data:${one.mimeType};base64,${one.data}`} alt={`P${name.slice(1)}`} />
                        ) : (
                            <span className="tag">
                                <bdi>{name}</bdi>
                            </span>
                        )}
                        <button
                            type="button"
                            aria-label={`Remove ${name}`}
                            onClick={() => onChange(all.filter((_, place) => place !== at))}
                        >
                            <Icon name="cross" size={12} />
                        </button>
                    </li>
                );
            })}
        </ul>
    );
}

/** Pictures and files of text; on a telephone also from the camera. */
function Files({ onFiles }: { onFiles: (files: readonly File[]) => void }) {
    const [files, camera] = [useRef<HTMLInputElement>(null), useRef<HTMLInputElement>(null)];
    const changed = (input: HTMLInputElement) => {
        onFiles([...(input.files ?? [])]);
        input.value = "";
    };
    return (
        <>
            <input
                ref={files}
                type="file"
                multiple
                hidden
                aria-label="Files"
                onChange={(event) => changed(event.currentTarget)}
            />
            <button
                type="button"
                className="icon-button attach"
                aria-label="Add files"
                title="Add pictures or text files"
                onClick={() => files.current?.click()}
            >
                <Icon name="image" />
            </button>
            {isCoarse() && (
                <>
                    <input
                        ref={camera}
                        type="file"
                        accept="image/*"
                        capture="environment"
                        hidden
                        aria-label="Camera"
                        onChange={(event) => changed(event.currentTarget)}
                    />
                    <button
                        type="button"
                        className="icon-button attach camera"
                        aria-label="Take a picture"
                        title="Take a picture"
                        onClick={() => camera.current?.click()}
                    >
                        <Icon name="camera" />
                    </button>
                </>
            )}
        </>
    );
}

const MODES: Record<string, string> = { ask: "Asks first", edit: "Edits freely", plan: "Plans only", bypass: "Bypasses all" };

function modesOf(state: State, mayBypass: boolean): Choice[] {
    const all = state.modes.map((one) => ({ id: one.id, name: MODES[one.id] ?? one.name }));
    const found = all.filter((one) => one.id !== "bypass" || mayBypass || state.mode === "bypass");
    return found.some((one) => one.id === state.mode)
        ? found
        : [{ id: state.mode, name: MODES[state.mode] ?? state.mode }, ...found];
}

function modelsOf(state: State): Choice[] {
    const found = state.models.map((one) => ({ ...one, name: one.name === one.id ? modelName(one.id) : one.name }));
    if (state.model === undefined) return found.length > 0 ? [{ id: "", name: "Model" }, ...found] : [];
    return found.some((one) => one.id === state.model) ? found : [{ id: state.model, name: modelName(state.model) }, ...found];
}

interface PickProps {
    label: string;
    value: string;
    choices: Choice[];
    disabled: boolean;
    onPick: (id: string) => void;
}

function Pick({ label, value, choices, disabled, onPick }: PickProps) {
    if (choices.length === 0) return null;
    const isFixed = disabled || choices.length === 1;
    return (
        <span className="choice-menu">
            <select aria-label={label} value={value} disabled={isFixed} onChange={(event) => onPick(event.target.value)}>
                {choices.map((one) => (
                    <option key={one.id} value={one.id}>
                        {oneLine(one.name, 60)}
                    </option>
                ))}
            </select>
            {!isFixed && <Icon name="chevron" size={12} />}
        </span>
    );
}

function Facts({ state }: { state: State | undefined }) {
    const { context, costUsd } = state ?? {};
    const used = context && context.size > 0 ? Math.min(100, Math.round((context.used / context.size) * 100)) : undefined;
    return (
        <span className="facts">
            {used !== undefined && (
                <span title={`${context?.used.toLocaleString()} of ${context?.size.toLocaleString()} tokens`}>
                    {used}% <span className="optional">context</span>
                </span>
            )}
            {costUsd !== undefined && costUsd > 0 && (
                <span className="optional" title="Cost of the session so far">
                    {money(costUsd)}
                </span>
            )}
        </span>
    );
}
