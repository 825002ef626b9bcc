/** Ctrl-K: goes to a session or a place by a few letters of its name. */
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { useStore } from "../base/store.ts";
import { sessions } from "../data/sessions.ts";
import { oneLine } from "../text/visible.ts";
import { paths } from "./route.ts";

const MOST = 12;
const PLACES = [
  { name: "Home", path: paths.home }, { name: "New session", path: paths.start }, { name: "Runs", path: paths.runs },
  { name: "Machines", path: paths.machines }, { name: "Settings", path: paths.settings },
];

/** Opens with Ctrl-K, on a Mac with Command-K. */
export function Palette() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const keyed = (event: globalThis.KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      event.preventDefault();
      setOpen((before) => !before);
    };
    addEventListener("keydown", keyed);
    return () => removeEventListener("keydown", keyed);
  }, []);
  return isOpen ? <Open onClose={() => setOpen(false)} /> : null;
}

function Open({ onClose }: { onClose: () => void }) {
  const { rows } = useStore(sessions);
  const [, go] = useLocation();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useId();
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
    return () => element?.close();
  }, []);
  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase().split(/\s+/);
    const all = [
      ...PLACES.map((place) => ({ ...place, about: "" })),
      ...rows.map((row) => ({ name: oneLine(row.title, 120), path: paths.session(row.id), about: row.host ?? "" })),
    ];
    return all.filter((one) => wanted.every((word) => `${one.name} ${one.about}`.toLowerCase().includes(word))).slice(0, MOST);
  }, [rows, text]);
  const choose = (path: string | undefined) => {
    if (path === undefined) return;
    onClose();
    go(path);
  };
  const keyed = (event: KeyboardEvent) => {
    if (event.key === "Enter") choose(found[at]?.path);
    else if (event.key === "ArrowDown") setAt((before) => Math.min(before + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt((before) => Math.max(before - 1, 0));
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} className="dialog palette" aria-label="Go to" onClose={onClose} onClick={(event) => {
      if (event.target === dialog.current) onClose();
    }}>
      <input className="input" role="combobox" aria-label="Go to" aria-expanded="true" aria-controls={list} aria-autocomplete="list"
        aria-activedescendant={found[at] ? `${list}-${at}` : undefined} placeholder="Go to a session or a place" value={text} autoComplete="off"
        onKeyDown={keyed} onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }} />
      <div role="listbox" id={list} aria-label="Found">
        {found.map((one, place) => (
          <div key={one.path} id={`${list}-${place}`} role="option" aria-selected={place === at} className="found" onClick={() => choose(one.path)} onMouseMove={() => setAt(place)}>
            <bdi>{one.name}</bdi>{one.about && <small><bdi>{oneLine(one.about, 40)}</bdi></small>}
          </div>
        ))}
        {found.length === 0 && <div role="option" aria-selected="false" aria-disabled="true" className="found none">Nothing has this name.</div>}
      </div>
    </dialog>
  );
}
