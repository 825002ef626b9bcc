/** Ctrl-K: goes to a session or a place, or does something, by a few letters of its name. */
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useLocation, useRoute } from "wouter";
import { look, setLook, type Theme } from "../base/look.ts";
import { useStore } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { textOf } from "../data/failure.ts";
import type { SessionRow } from "../data/row.ts";
import { archive } from "../data/session-actions.ts";
import { sessions } from "../data/sessions.ts";
import { lookForNew } from "../data/update.ts";
import { oneLine } from "../text/visible.ts";
import { paths } from "./route.ts";

const MOST = 16;
const PLACES = [
    { name: "Home", path: paths.home },
    { name: "New session", path: paths.start },
    { name: "Runs", path: paths.runs },
    { name: "New run", path: paths.plan },
    { name: "Machines", path: paths.machines },
    { name: "Settings", path: paths.settings },
];
const THEMES: Record<Theme, string> = { light: "Light colours", dark: "Dark colours", system: "System colours" };

interface Found {
    key: string;
    name: string;
    about: string;
    choose: () => void;
}

/** What can be done from every screen, and with the session that is shown. */
function actions(shown: SessionRow | undefined, theme: Theme): Found[] {
    const attempt = (run: Promise<void>, done: string, undo?: () => void): void =>
        void run.then(
            () => say(done, undo),
            (error: unknown) => say(textOf(error)),
        );
    const themes = (Object.keys(THEMES) as Theme[]).filter((one) => one !== theme);
    const all = [
        ...themes.map((one) => ({ name: THEMES[one], choose: () => setLook({ theme: one }) })),
        { name: "Check for a new version", choose: () => attempt(lookForNew(), "Checked for a new version.") },
    ];
    if (shown?.accessLevel === "owner") {
        const to = !shown.archived;
        const choose = (): void =>
            attempt(archive(shown, to), to ? "Archived" : "Back in the list", () => void archive(shown, !to));
        all.unshift({ name: to ? "Archive this session" : "Put this session back into the list", choose });
    }
    return all.map((one) => ({ ...one, key: one.name, about: "" }));
}

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
    const { theme } = useStore(look);
    const [, go] = useLocation();
    const [, here] = useRoute("/sessions/:id");
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
        const all: Found[] = [
            ...PLACES.map(({ name, path }) => ({ key: path, name, about: "", choose: () => go(path) })),
            ...actions(
                rows.find(({ id }) => id === here?.id),
                theme,
            ),
            ...rows.map((row) => ({
                key: row.id,
                name: oneLine(row.title, 120),
                about: row.host ?? "",
                choose: () => go(paths.session(row.id)),
            })),
        ];
        return all
            .filter((one) => wanted.every((word) => `${one.name} ${one.about}`.toLowerCase().includes(word)))
            .slice(0, MOST);
    }, [rows, text, theme, go, here?.id]);
    const choose = (one: Found | undefined) => {
        if (!one) return;
        onClose();
        one.choose();
    };
    const keyed = (event: KeyboardEvent) => {
        if (event.key === "Enter") choose(found[at]);
        else if (event.key === "ArrowDown") setAt((before) => Math.min(before + 1, found.length - 1));
        else if (event.key === "ArrowUp") setAt((before) => Math.max(before - 1, 0));
        else return;
        event.preventDefault();
    };
    return (
        <dialog
            ref={dialog}
            className="dialog palette"
            aria-label="Go to"
            onClose={onClose}
            onClick={(event) => {
                if (event.target === dialog.current) onClose();
            }}
        >
            <input
                className="input"
                role="combobox"
                aria-label="Go to"
                aria-expanded="true"
                aria-controls={list}
                aria-autocomplete="list"
                aria-activedescendant={found[at] ? `${list}-${at}` : undefined}
                placeholder="Go to a session or a place, or do something"
                value={text}
                autoComplete="off"
                onKeyDown={keyed}
                onChange={(event) => {
                    setText(event.target.value);
                    setAt(0);
                }}
            />
            <div role="listbox" id={list} aria-label="Found">
                {found.map((one, place) => (
                    <div
                        key={one.key}
                        id={`${list}-${place}`}
                        role="option"
                        aria-selected={place === at}
                        className="found"
                        onClick={() => choose(one)}
                        onMouseMove={() => setAt(place)}
                    >
                        <bdi>{one.name}</bdi>
                        {one.about && (
                            <small>
                                <bdi>{oneLine(one.about, 40)}</bdi>
                            </small>
                        )}
                    </div>
                ))}
                {found.length === 0 && (
                    <div role="option" aria-selected="false" aria-disabled="true" className="found none">
                        Nothing matches.
                    </div>
                )}
            </div>
        </dialog>
    );
}
