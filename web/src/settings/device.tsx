/** One device of the account: how it is called, and what a primary device may do with it. */
import { type FormEvent, useState } from "react";
import { say } from "../base/toast.tsx";
import { ago } from "../base/words.ts";
import { type DeviceRow, removeDevice, renameDevice } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";

const ROLES: Record<string, string> = {
    primary: "can add, rename and remove devices",
    linked: "can read, write and approve",
    machine: "runs agents",
    recovery: "brings the account back",
};

export function Device({ row, isPrimary, onChanged }: { row: DeviceRow; isPrimary: boolean; onChanged: () => void }) {
    const [open, setOpen] = useState<"rename" | "remove">();
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const close = () => setOpen(undefined);
    const remove = () => {
        setBusy(true);
        setError(undefined);
        removeDevice(row.key)
            .then((unconfirmed) => {
                const machines =
                    unconfirmed === 1
                        ? "A machine has not confirmed it: see Home."
                        : `${unconfirmed} machines have not confirmed it: see Home.`;
                say(`Removed: ${oneLine(row.name, 60)}.${unconfirmed > 0 ? ` ${machines}` : ""}`);
                onChanged();
            })
            .catch((caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    const mayRename = isPrimary && (row.role === "primary" || row.role === "linked");
    const mayRemove = mayRename && !row.current;
    return (
        <div className="entry device">
            <span className="what">
                <span className="name">
                    <bdi>{oneLine(row.name, 80)}</bdi> {row.current && <span className="tag accent">this browser</span>}
                </span>
                <span className="about">
                    {ROLES[row.role] ?? row.role}
                    {row.lastSeenAt ? ` · ${ago(row.lastSeenAt)}` : ""}
                </span>
                {error !== undefined && (
                    <span className="error-text" role="alert">
                        {error}
                    </span>
                )}
                {isBusy && (
                    <span className="about" role="status">
                        Removing it. Your sessions get new keys: this takes a few seconds.
                    </span>
                )}
            </span>
            {mayRename && open === undefined && (
                <button
                    type="button"
                    className="button small plain"
                    onClick={() => setOpen("rename")}
                    aria-label={`Rename ${oneLine(row.name, 60)}`}
                >
                    Rename
                </button>
            )}
            {mayRemove && open === undefined && (
                <button
                    type="button"
                    className="button small plain"
                    onClick={() => setOpen("remove")}
                    aria-label={`Remove ${oneLine(row.name, 60)}`}
                >
                    Remove
                </button>
            )}
            {mayRename && open === "rename" && <Rename row={row} onClose={close} onRenamed={onChanged} />}
            {mayRemove && open === "remove" && (
                <>
                    <button type="button" className="button small danger" disabled={isBusy} onClick={remove}>
                        Remove
                    </button>
                    <button type="button" className="button small" disabled={isBusy} onClick={close}>
                        Cancel
                    </button>
                </>
            )}
        </div>
    );
}

function Rename({ row, onClose, onRenamed }: { row: DeviceRow; onClose: () => void; onRenamed: () => void }) {
    const [name, setName] = useState(row.given);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        setBusy(true);
        setError(undefined);
        renameDevice(row.key, name).then(
            () => {
                onRenamed();
                onClose();
            },
            (caught: unknown) => {
                setBusy(false);
                setError(textOf(caught));
            },
        );
    };
    return (
        <form className="name-form" onSubmit={submitted}>
            <label className="field">
                <span>Name of this device</span>
                <input
                    className="input"
                    value={name}
                    maxLength={60}
                    required
                    autoFocus
                    autoComplete="off"
                    onChange={(event) => setName(event.target.value)}
                />
            </label>
            <button type="submit" className="button" disabled={isBusy || name.trim() === "" || name.trim() === row.given}>
                {isBusy ? "Saving…" : "Save"}
            </button>
            <button type="button" className="button plain" disabled={isBusy} onClick={onClose}>
                Cancel
            </button>
            {error !== undefined && (
                <span className="error-text" role="alert">
                    {error}
                </span>
            )}
        </form>
    );
}
