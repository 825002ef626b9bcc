/** The frame around every screen. */
import { lazy, type ReactNode, Suspense, useEffect, useRef } from "react";
import { Link, useLocation, useRoute } from "wouter";
import { Icon, type IconName } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { Toasts } from "../base/toast.tsx";
import { isNew } from "../data/row.ts";
import { sessions } from "../data/sessions.ts";
import { oneLine } from "../text/visible.ts";
import { Clock } from "./clock.tsx";
import { Connection } from "./connection.tsx";
import { Dot } from "./dot.tsx";
import { Palette } from "./palette.tsx";
import { Room } from "./room.tsx";
import { paths } from "./route.ts";

const Joining = lazy(() => import("../share/joining.tsx").then((found) => ({ default: found.Joining })));

const PLACES: { href: string; name: string; icon: IconName }[] = [
    { href: paths.home, name: "Home", icon: "home" },
    { href: paths.runs, name: "Runs", icon: "runs" },
    { href: paths.machines, name: "Machines", icon: "machine" },
    { href: paths.settings, name: "Settings", icon: "settings" },
];
const MOST_LISTED = 40;

export function Shell({ children }: { children: ReactNode }) {
    const [isSession] = useRoute("/sessions/:id");
    useFocusOnScreen();
    return (
        <div className={isSession ? "shell in-session" : "shell"}>
            <a className="skip" href="#main">
                Skip to content
            </a>
            <aside className="side">
                <Link href={paths.home} className="brand">
                    <img src="/icon.svg" alt="" />
                    Ensemble
                </Link>
                <nav aria-label="Places">
                    {PLACES.map((place) => (
                        <Place key={place.href} {...place} size={16} className="row" />
                    ))}
                </nav>
                <div className="side-head">
                    <h2 id="side-head">Sessions</h2>
                    <Link href={paths.start} className="icon-button" aria-label="New session" title="New session">
                        <Icon name="plus" size={14} />
                    </Link>
                </div>
                <SideList />
            </aside>
            <div className="main">
                <Connection />
                <Clock />
                <Room />
                <Suspense>
                    <Joining />
                </Suspense>
                <main id="main" className="main" tabIndex={-1}>
                    {children}
                </main>
            </div>
            <nav className="tabs" aria-label="Places">
                {PLACES.map((place) => (
                    <Place key={place.href} {...place} size={20} />
                ))}
            </nav>
            <Toasts />
            <Palette />
        </div>
    );
}

/** A new screen moves the focus to its heading: what had it may be gone, and a screen reader announces the screen. */
function useFocusOnScreen(): void {
    const [here] = useLocation();
    const before = useRef(here);
    useEffect(() => {
        if (before.current === here) return;
        before.current = here;
        const heading = document.querySelector<HTMLElement>("main h1");
        if (!heading) return;
        heading.tabIndex = -1;
        heading.focus();
    }, [here]);
}

function Place({
    href,
    name,
    icon,
    size,
    className,
}: {
    href: string;
    name: string;
    icon: IconName;
    size: number;
    className?: string;
}) {
    const [isHere] = useRoute(href);
    return (
        <Link href={href} {...(className && { className })} {...(isHere && { "aria-current": "page" as const })}>
            <Icon name={icon} size={size} />
            <span className={className ? "title" : ""}>{name}</span>
        </Link>
    );
}

function SideList() {
    const { rows } = useStore(sessions);
    const [, here] = useRoute("/sessions/:id");
    const shown = rows.filter((row) => !row.archived).slice(0, MOST_LISTED);
    return (
        <nav className="sessions" aria-labelledby="side-head">
            {shown.map((row) => (
                <Link
                    key={row.id}
                    href={paths.session(row.id)}
                    className={isNew(row) ? "row new" : "row"}
                    {...(here?.id === row.id && { "aria-current": "page" as const })}
                >
                    <Dot row={row} />
                    <bdi className="title">{oneLine(row.title, 120)}</bdi>
                </Link>
            ))}
        </nav>
    );
}
