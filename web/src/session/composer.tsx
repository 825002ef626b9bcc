/** The field to write in: queue or steer, interrupt, mode and model. */
import { type FormEvent, type KeyboardEvent, useId, useLayoutEffect, useRef, useState } from "react";
import { Icon } from "../base/icons.tsx";
import { money } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";
import { type Picture, picturesIn, withPictures } from "./pictures.ts";
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
  /** `bypass` is a primary device's only. */
  mayBypass: boolean;
  /** An agent reads it. Otherwise people do. */
  isHosted: boolean;
  images: readonly Picture[];
  onImages: (images: Picture[]) => void;
}

/** A longer text does not fit into a message. */
const MOST_TEXT = 600_000;

const isCoarse = () => matchMedia("(pointer: coarse)").matches;

export function Composer(props: Props) {
  const { state, draft } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const name = useId();
  const isBusy = state?.phase === "working" || state?.phase === "waiting";
  const maySteer = isBusy && state?.steers === true;
  const isEmpty = draft.trim() === "" && props.images.length === 0;
  const [error, setError] = useState<string>();
  const add = (files: readonly File[]) => {
    setError(undefined);
    withPictures(props.images, files).then((all) => props.onImages(all), (caught: unknown) => setError(textOf(caught)));
  };
  /** Takes the pictures of what was pasted or dropped; text goes its usual way. */
  const taken = (event: { preventDefault: () => void }, data: DataTransfer | null) => {
    const files = [...(data?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    const pictures = props.isHosted ? picturesIn(data) : [];
    const others = files.filter((file) => !pictures.includes(file)).map((file) => oneLine(file.name, 60));
    if (pictures.length > 0) add(pictures);
    if (others.length > 0) setError(`Not added: ${others.join(", ")}. ${props.isHosted ? "A prompt takes pictures only. Paste the text of a file, or name its path." : "People write text to each other here."}`);
  };
  /** What is too long is refused as a whole: a part of it would say something else. */
  const write = (text: string) => {
    setError(text.length > MOST_TEXT ? `Not taken: a prompt has at most ${MOST_TEXT.toLocaleString()} characters, and this would be ${text.length.toLocaleString()}. Put it into a file on the machine, and name its path.` : undefined);
    if (text.length <= MOST_TEXT) props.onDraft(text);
  };

  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [draft]);

  const send = (when: "now" | "next") => {
    if (!isEmpty) props.onPrompt(when);
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
  const placeholder = !props.isHosted ? "Write to the others" : isBusy ? "Add to the queue" : state?.phase === "ended" ? "The session has ended" : `Ask ${oneLine(state?.agent ?? "the agent", 40)}`;

  return (
    <form className="composer" onSubmit={submitted} aria-label={props.isHosted ? "Write to the agent" : "Write to the others"}
      onDragOver={(event) => event.preventDefault()} onDrop={(event) => taken(event, event.dataTransfer)}>
      {props.images.length > 0 && (
        <ul className="pictures" aria-label="Pictures">
          {props.images.map(({ mimeType, data }, at) => (
            <li key={at}>
              <img src={`data:${mimeType};base64,${data}`} alt={`Picture ${at + 1}`} />
              <button type="button" aria-label={`Remove picture ${at + 1}`} onClick={() => props.onImages(props.images.filter((_, place) => place !== at))}><Icon name="cross" size={12} /></button>
            </li>
          ))}
        </ul>
      )}
      {error !== undefined && <p className="error-text" role="alert">{error}</p>}
      <label className="hidden-label" htmlFor={name}>Prompt</label>
      <textarea id={name} ref={field} rows={1} value={draft} placeholder={placeholder} dir="auto"
        enterKeyHint={isCoarse() ? "enter" : "send"} onChange={(event) => write(event.target.value)} onKeyDown={keyed} onPaste={(event) => taken(event, event.clipboardData)} />
      <div className="bar">
        {props.isHosted && <Files onFiles={add} />}
        {state && (
          <>
            <Pick label="Mode" value={state.mode} choices={modesOf(state, props.mayBypass)} disabled={!props.isOwner} onPick={props.onMode} />
            <Pick label="Model" value={state.model ?? ""} choices={modelsOf(state)} disabled={!props.mayChangeModel} onPick={props.onModel} />
          </>
        )}
        <span className="space" />
        <Facts state={state} />
        {maySteer && !isEmpty && (
          <button type="button" className="button small" onClick={() => send("now")} title="Into the turn that runs (Ctrl+Enter)">Steer</button>
        )}
        {isBusy && (
          <button type="button" className="send stop" onClick={props.onInterrupt} aria-label="Interrupt" title="Interrupt">
            <Icon name="stop" />
          </button>
        )}
        {!(isBusy && isEmpty) && (
          <button type="submit" className="send" disabled={isEmpty} aria-label={isBusy ? "Queue" : "Send"} title={isBusy ? "Queue" : "Send"}>
            <Icon name="up" />
          </button>
        )}
      </div>
    </form>
  );
}

/** Pictures from files; on a telephone also from the camera. */
function Files({ onFiles }: { onFiles: (files: readonly File[]) => void }) {
  const [files, camera] = [useRef<HTMLInputElement>(null), useRef<HTMLInputElement>(null)];
  const changed = (input: HTMLInputElement) => {
    onFiles([...(input.files ?? [])]);
    input.value = "";
  };
  return (
    <>
      <input ref={files} type="file" accept="image/*" multiple hidden aria-label="Pictures" onChange={(event) => changed(event.currentTarget)} />
      <button type="button" className="icon-button attach" aria-label="Add pictures" title="Add pictures" onClick={() => files.current?.click()}><Icon name="image" /></button>
      {isCoarse() && (
        <>
          <input ref={camera} type="file" accept="image/*" capture="environment" hidden aria-label="Camera" onChange={(event) => changed(event.currentTarget)} />
          <button type="button" className="icon-button attach" aria-label="Take a picture" title="Take a picture" onClick={() => camera.current?.click()}><Icon name="camera" /></button>
        </>
      )}
    </>
  );
}

const MODES: Record<string, string> = { ask: "Asks first", edit: "Edits freely", plan: "Plans only", bypass: "Bypasses all" };

function modesOf(state: State, mayBypass: boolean): Choice[] {
  const all = state.modes.map((one) => ({ id: one.id, name: MODES[one.id] ?? one.name }));
  const found = all.filter((one) => one.id !== "bypass" || mayBypass || state.mode === "bypass");
  return found.some((one) => one.id === state.mode) ? found : [{ id: state.mode, name: MODES[state.mode] ?? state.mode }, ...found];
}

function modelsOf(state: State): Choice[] {
  const found = state.models;
  if (state.model === undefined) return found.length > 0 ? [{ id: "", name: "Model" }, ...found] : [];
  return found.some((one) => one.id === state.model) ? found : [{ id: state.model, name: state.model }, ...found];
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
        {choices.map((one) => <option key={one.id} value={one.id}>{oneLine(one.name, 60)}</option>)}
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
      {used !== undefined && <span title={`${context?.used.toLocaleString()} of ${context?.size.toLocaleString()} tokens`}>{used}% <span className="optional">context</span></span>}
      {costUsd !== undefined && costUsd > 0 && <span className="optional" title="Cost of the session so far">{money(costUsd)}</span>}
    </span>
  );
}
