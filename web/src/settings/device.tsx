/** One device of the account: its name, and what a primary device may do with it. */
import { type FormEvent, useState } from "react";
import { Confirm } from "../base/confirm.tsx";
import { Choice } from "../base/field.tsx";
import { say } from "../base/toast.tsx";
import { ago } from "../base/words.ts";
import { type DeviceRow, leftOpen, removeDevice, renameDevice } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";

const ROLES: Record<string, string> = {
    primary: "can add, rename and remove devices",
    linked: "can read, write and approve",
    machine: "runs agents",
    recovery: "brings the account back",
};

interface Props {
    row: DeviceRow;
    /** The devices and machines of the account. */
    all: readonly DeviceRow[];
    isPrimary: boolean;
    onChanged: () => void;
}

export function Device({ row, all, isPrimary, onChanged }: Props) {
    const [open, setOpen] = useState<"rename" | "remove">();
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const close = () => setOpen(undefined);
    const remove = (machines: readonly string[]) => {
        setBusy(true);
        setError(undefined);
        removeDevice(row.key, machines)
            .then((removed) => {
                say([`Removed: ${oneLine(row.name, 60)}.`, ...leftOpen(removed)].join(" "));
                onChanged();
            })
            .catch((caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    const isMachine = row.role === "machine";
    const mayRename = isPrimary && row.role !== "recovery";
    const mayRemove = mayRename && !isMachine && !row.current;
    return (
        <div className="entry device">
            <span className="what">
                <span className="name">
                    <bdi>{oneLine(row.name, 80)}</bdi> {row.current && <span className="tag accent">this browser</span>}
                </span>
                <span className="about">
                    {ROLES[row.role] ?? row.role}
                    {row.ref !== undefined && ` · ${row.ref}`}
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
            {mayRemove && open === "remove" && <Remove row={row} all={all} isBusy={isBusy} onRemove={remove} onClose={close} />}
        </div>
    );
}

interface RemoveProps {
    row: DeviceRow;
    all: readonly DeviceRow[];
    isBusy: boolean;
    /** Receives the keys of the machines to remove with it. */
    onRemove: (machines: readonly string[]) => void;
    onClose: () => void;
}

/** Asks before a removal, and lists all machines. Those on the device's computer are removed with it, and others can be chosen. */
function Remove({ row, all, isBusy, onRemove, onClose }: RemoveProps) {
    const [chosen, setChosen] = useState<readonly string[]>([]);
    const machines = all.filter(({ role }) => role === "machine");
    const isOfIt = (machine: DeviceRow) => machine.by === row.key;
    const isGone = (machine: DeviceRow) => isOfIt(machine) || chosen.includes(machine.key);
    return (
        <Confirm label={`Remove ${oneLine(row.name, 60)}?`}>
            <p>
                It can no longer sign in, and reads nothing that is written from now on. Every machine is asked to confirm that
                it no longer obeys this device.
            </p>
            {machines.length > 0 && (
                <fieldset className="question">
                    <legend>Which machines should be removed with it?</legend>
                    {machines.map((machine) => (
                        <Choice
                            key={machine.key}
                            className="choice"
                            label={oneLine(machine.name, 80)}
                            hint={isOfIt(machine) ? `${machine.ref ?? ""} · on its computer` : (machine.ref ?? "")}
                            checked={isGone(machine)}
                            disabled={isBusy || isOfIt(machine)}
                            onChange={({ target }) =>
                                setChosen((before) =>
                                    target.checked ? [...before, machine.key] : before.filter((key) => key !== machine.key),
                                )
                            }
                        />
                    ))}
                </fieldset>
            )}
            <div className="actions">
                <button
                    type="button"
                    className="button danger"
                    disabled={isBusy}
                    onClick={() => onRemove(machines.filter(isGone).map(({ key }) => key))}
                >
                    Remove
                </button>
                <button type="button" className="button plain" disabled={isBusy} onClick={onClose}>
                    Cancel
                </button>
            </div>
        </Confirm>
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
                <span>{row.role === "machine" ? "Name of this machine" : "Name of this device"}</span>
                <input
                    className="input"
                    value={name}
                    maxLength={row.role === "machine" ? 63 : 60}
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
