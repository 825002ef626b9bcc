/** Which screen an address shows. */
import { lazy, type ReactNode, Suspense, useEffect } from "react";
import { Link, Route, Switch, useRoute } from "wouter";
import { linkPerson } from "./base/link-address.ts";
import { look } from "./base/look.ts";
import { whenSignedOut } from "./base/signed-out.ts";
import { useStore } from "./base/store.ts";
import { useTitle } from "./base/title.ts";
import { account, enter, open } from "./data/account.ts";
import { connection } from "./data/connection.ts";
import { keepSubscribed } from "./data/push.ts";
import { followAccount } from "./data/sessions.ts";
import { Home } from "./home/home.tsx";
import { SessionPage } from "./session/page.tsx";
import { paths } from "./shell/route.ts";
import { Shell } from "./shell/shell.tsx";
import { Update } from "./shell/update.tsx";
import { Frame, Welcome } from "./welcome/welcome.tsx";
import { Words } from "./welcome/words.tsx";

/** Screens that are not the first one of a day. */
const Machines = lazy(() => import("./machines/machines.tsx").then((found) => ({ default: found.Machines })));
const Runs = lazy(() => import("./runs/list.tsx").then((found) => ({ default: found.Runs })));
const Start = lazy(() => import("./start/start.tsx").then((found) => ({ default: found.Start })));
const NewPlan = lazy(() => import("./runs/new-plan.tsx").then((found) => ({ default: found.NewPlan })));
const Settings = lazy(() => import("./settings/settings.tsx").then((found) => ({ default: found.Settings })));
const Removed = lazy(() => import("./welcome/removed.tsx").then((found) => ({ default: found.Removed })));
const RunPage = lazy(() => import("./runs/run.tsx").then((found) => ({ default: found.RunPage })));
const Invited = lazy(() => import("./welcome/invited.tsx").then((found) => ({ default: found.Invited })));
/** The first screen of people who have no account here. */
const PublicPage = lazy(() => import("./share/public-page.tsx").then((found) => ({ default: found.PublicPage })));

export function App() {
    const [isPublic, shared] = useRoute("/share/:token");
    return (
        <>
            {isPublic ? (
                <Later>
                    <PublicPage key={shared.token} token={shared.token} />
                </Later>
            ) : (
                <Own />
            )}
            <Update />
        </>
    );
}

function Own() {
    const state = useStore(account);
    const { language } = useStore(look);
    useEffect(() => {
        void open();
    }, []);
    useEffect(() => whenSignedOut(() => location.reload()), []);
    if (state.state === "loading") return <Opening />;
    if (state.state === "failed") return <Failed text={state.text} />;
    if (state.state === "emptied") return <Emptied />;
    if (state.state === "removed")
        return (
            <Later>
                <Removed />
            </Later>
        );
    if (state.state === "none") return <Welcome />;
    if (state.state === "words") return <Words made={state.made} isAgain onDone={enter} />;
    return <Open key={`${state.userId} ${language}`} />;
}

function Open() {
    useEffect(followAccount, []);
    useEffect(keepSubscribed, []);
    useEffect(() => {
        if (linkPerson() !== undefined && location.pathname === "/link")
            void import("./data/end-link.ts").then(({ endLink }) => endLink());
    }, []);
    return (
        <Shell>
            <Switch>
                <Route path={paths.home} component={Home} />
                <Route path="/link" component={Home} />
                <Route path="/join">
                    <Later>
                        <Invited />
                    </Later>
                </Route>
                <Route path="/sessions/:id">{({ id }) => <SessionPage id={id} />}</Route>
                <Route path="/sessions/:id/talk">{({ id }) => <SessionPage id={id} isTalking />}</Route>
                <Route path={paths.machines}>
                    <Later>
                        <Machines />
                    </Later>
                </Route>
                <Route path={paths.runs}>
                    <Later>
                        <Runs />
                    </Later>
                </Route>
                <Route path={paths.plan}>
                    <Later>
                        <NewPlan />
                    </Later>
                </Route>
                <Route path="/runs/:id">
                    {({ id }) => (
                        <Later>
                            <RunPage key={id} id={id} />
                        </Later>
                    )}
                </Route>
                <Route path={paths.start}>
                    <Later>
                        <Start />
                    </Later>
                </Route>
                <Route path={paths.settings}>
                    <Later>
                        <Settings />
                    </Later>
                </Route>
                <Route component={Nowhere} />
            </Switch>
        </Shell>
    );
}

/** A screen whose script comes when it is asked for. */
function Later({ children }: { children: ReactNode }) {
    return (
        <Suspense
            fallback={
                <p className="older" role="status">
                    Opening…
                </p>
            }
        >
            {children}
        </Suspense>
    );
}

/** Most open at once: only what lasts shows itself. */
function Opening() {
    const { isLost } = useStore(connection);
    if (!isLost) return null;
    return (
        <Frame
            title="Your account is not open yet"
            lead="This browser has the keys. Your sessions appear as soon as the server answers. You do not need to reload the page."
        >
            <div className="list" role="status" aria-label="Opening">
                <div className="skeleton" />
            </div>
        </Frame>
    );
}

function Failed({ text }: { text: string }) {
    return (
        <Frame title="Your account cannot be opened" lead={text}>
            <div className="actions">
                <button type="button" className="button primary" onClick={() => location.reload()}>
                    Try again
                </button>
            </div>
        </Frame>
    );
}

function Emptied() {
    return (
        <Frame
            title="This browser has forgotten your account"
            lead="The data of this page was removed, and your keys with it. It may have been cleared in the browser’s settings, or the disk was full. Your sessions are safe."
        >
            <p>
                Add this browser again from another device, or use your recovery words. Then remove the old entry of this
                browser in the settings.
            </p>
            <div className="actions">
                <button type="button" className="button primary" onClick={() => location.reload()}>
                    Start over
                </button>
            </div>
        </Frame>
    );
}

function Nowhere() {
    useTitle("Nothing here");
    return (
        <div className="page">
            <div className="inner">
                <div className="empty">
                    <h1>There is nothing at this address</h1>
                    <p>The address may be wrong, or it may need a newer version of Ensemble.</p>
                    <Link href={paths.home} className="button">
                        Home
                    </Link>
                </div>
            </div>
        </div>
    );
}
