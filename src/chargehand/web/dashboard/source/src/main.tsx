// The application: header, navigation, and the page that the URL names.

import { effect, signal } from "@preact/signals";
import { render } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { KeysPage } from "./apikeys";
import { may, refused, session, signOut, whoAmI } from "./api";
import { CrashesPage, CrashPage } from "./crashes";
import { Doctor } from "./doctor";
import { FlowPage } from "./flow";
import { Flows } from "./flows";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { Keyboard } from "./keys";
import { connection, health, info, listen, lostSince, nodeless, nodeNames, wanted } from "./live";
import { Nodes } from "./nodes";
import { Operations } from "./operations";
import { Overview } from "./overview";
import { Ago, Copy, Dialog, Mark, Skeleton, tell, Toasts } from "./parts";
import { howMany, watchProblems } from "./problems";
import { QueuePage } from "./queue";
import { QueuesPage } from "./queues";
import { RecurringPage } from "./recurring";
import { place, to } from "./route";
import { SignIn } from "./signin";
import "./style.css";
import { choice, type Theme } from "./theme";
import { WorkerPage } from "./worker";
import { Workers } from "./workers";

const PAGES: [page: string, title: string][] = [
  ["", "Overview"],
  ["nodes", "Nodes"],
  ["jobs", "Jobs"],
  ["flows", "Flows"],
  ["queues", "Queues"],
  ["workers", "Workers"],
  ["crashes", "Crashes"],
  ["recurring", "Recurring"],
  ["operations", "Operations"],
  ["doctor", "Diagnosis"],
  ["keys", "Keys"],
];

function Page() {
  const { page, what } = place.value;
  switch (page) {
    case "":
      return <Overview />;
    case "nodes":
      return <Nodes />;
    case "jobs":
      return <Jobs />;
    case "job":
      return <JobPage key={what} id={what} />;
    case "flows":
      return <Flows />;
    case "flow":
      return <FlowPage key={what} id={what} />;
    case "queues":
      return <QueuesPage />;
    case "queue":
      return <QueuePage key={what} name={what} />;
    case "workers":
      return <><h1 tabIndex={-1} class="hidden">Workers</h1><Workers /></>;
    case "worker":
      return <WorkerPage key={what} name={what} />;
    case "crashes":
      return <CrashesPage />;
    case "crash":
      return <CrashPage key={what} id={what} />;
    case "recurring":
      return <RecurringPage />;
    case "keys":
      return <KeysPage />;
    case "operations":
      return <Operations />;
    case "doctor":
      return <Doctor />;
    default:
      return <h1 tabIndex={-1}>Page not found</h1>;
  }
}

const PARENTS: Record<string, string> = { job: "jobs", flow: "flows", queue: "queues", worker: "workers", crash: "crashes" };

function App() {
  const main = useRef<HTMLElement>(null);
  const { page, what } = place.value;
  const first = useRef(true);
  useLayoutEffect(() => {
    if (!first.current) {
      main.current?.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
  }, [page, what]);
  if (!session.value) {
    return refused.value === null ? <Waiting /> : <SignIn />;
  }
  const active = PARENTS[page] ?? page;
  const lost = connection.value === "lost";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>
        Skip to the content
      </a>
      <header class="bar-top">
        <strong class="brand">
          <Mark state={lost ? "unknown" : (health.value?.status ?? "unknown")} /> Chargehand
        </strong>
        <nav aria-label="Pages">
          {PAGES.filter(([name]) => (name !== "nodes" || nodeNames.value.length > 0) && (name !== "keys" || may("control"))).map(([name, title]) => (
            <a key={name} href={to(name)} aria-current={active === name ? "page" : undefined}>
              {title}
            </a>
          ))}
          {info.value?.pages.map((each) => (
            <a key={each.url} href={each.url} class="own">
              {each.title}
            </a>
          ))}
        </nav>
        <div class="who">
          <span class={`connection ${lost ? "bad" : "soft"}`} role="status">
            <Mark state={lost ? "error" : connection.value === "live" ? "healthy" : "starting"} />
            {lost ? `Connection lost; data as of ${lostSince()}` : connection.value}
          </span>
          <label class="theme">
            <span class="hidden">Theme</span>
            <select value={choice.value} onChange={(event) => (choice.value = event.currentTarget.value as Theme)}>
              <option value="auto">Auto</option>
              <option value="light">Light</option>
              <option value="dark">Dark</option>
            </select>
          </label>
          <span class="soft name" title={`Scopes: ${session.value.scopes.join(", ")}`}>
            {session.value.name}
          </span>
          {session.value.csrf && <button onClick={leave}>Sign out</button>}
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1} class={lost ? "stale" : ""}>
        {nodeless.value !== null && !lost && page !== "" && (
          <p class="trouble" role="status">
            <Mark state="error" /> No node is running, noticed <Ago ms={nodeless.value} />: no jobs are performed. <a href={to("")}>What to do</a>
          </p>
        )}
        {session.value.scopes.includes("read") ? <Page /> : <p class="trouble">This key does not have the scope read.</p>}
      </main>
      <footer class="soft">
        {info.value && `Chargehand ${info.value.version} on ${info.value.node}`}
        {info.value?.supervisor?.pid && `, node process ${info.value.supervisor.pid}`}
      </footer>
      <Toasts />
      <Keyboard />
      <Dialog />
    </>
  );
}

/** Why the page cannot begin, such as a disk that is full, on which no session can be stored. */
const troubled = signal<string | null>(null);

function Waiting() {
  if (troubled.value === null) return <main><Skeleton /></main>;
  return (
    <main>
      <section class="verdict bad" aria-labelledby="verdict">
        <h1 id="verdict"><Mark state="error" /> The dashboard cannot begin</h1>
        <p class="command">{troubled.value}</p>
        <p class="command">This page tries again by itself. On the machine of the server: <code>chargehand doctor</code> <Copy text="chargehand doctor" what="the command" /></p>
      </section>
    </main>
  );
}

async function leave(): Promise<void> {
  try {
    await signOut();
  } catch (error) {
    tell("Sign out failed", [(error as Error).message], true);
  }
}

async function begin(): Promise<void> {
  for (let wait = 500; ; wait = Math.min(wait * 2, 5000)) {
    try {
      await whoAmI();
      troubled.value = null;
      return;
    } catch (error) {
      troubled.value = (error as Error).message;
      connection.value = "lost";
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** Returns the topics that a page needs. */
function topicsOf(page: string, what: string): string[] {
  if (page === "jobs") return ["queue:jobs"];
  if (page === "flows") return ["flow:*"];
  return (page === "job" || page === "flow") && /^[\w-]+$/.test(what) ? [`${page}:${what}`] : [];
}

effect(() => {
  const { page, what } = place.value;
  const topics = topicsOf(page, what);
  if (topics.join() !== wanted.peek().join()) wanted.value = topics;
  const title = PAGES.find(([name]) => name === page)?.[1] ?? what;
  const problems = session.value ? howMany.value : 0;
  document.title = `${problems ? `(${problems}) ` : ""}${title || what} · Chargehand`;
  const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (icon) icon.href = icon.href.replace(/icon[a-z-]*\.svg/, problems ? "icon-bad.svg" : "icon.svg");
});

render(<App />, document.getElementById("root")!);
listen();
watchProblems();
void begin();
