import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { HealthCheck_Status as Status } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { base } from "./base.ts";
import { Events } from "./events.tsx";
import { count } from "./format.ts";
import { Host } from "./host.tsx";
import type { State } from "./model.ts";
import { PodDetails } from "./pod-details.tsx";
import { PodTable } from "./pod-table.tsx";
import { Policies } from "./policies.tsx";
import { Pools } from "./pools.tsx";
import { Starts } from "./starts.tsx";
import { Topology } from "./topology.tsx";

const views = ["Network", "Pods", "Starts", "Addresses", "Policies", "Events", "Host"] as const;
type View = (typeof views)[number];

/** The view of the address's fragment, so that the browser's buttons work. */
const viewOf = (): View =>
  views.find((view) => location.hash === `#${view.toLowerCase()}`) ?? "Network";

function useView(): View {
  const [view, setView] = useState(viewOf);
  useEffect(() => {
    const follow = (): void => setView(viewOf());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return view;
}

/** `/` goes to the search field, and Escape closes a pod's details. */
function useKeys(close: () => void) {
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const typing = event.target instanceof HTMLInputElement;
      if (event.key === "/" && !typing) {
        event.preventDefault();
        search.current?.focus();
      }
      if (event.key === "Escape") close();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [close]);
  return search;
}

const themes = ["auto", "light", "dark"] as const;

function ThemeButton() {
  const [at, setAt] = useState(0);
  const theme = themes[at % themes.length] ?? "auto";
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  return (
    <button type="button" class="quiet" onClick={() => setAt(at + 1)}>
      Theme: {theme}
    </button>
  );
}

function Health({ state }: { state: State }) {
  const failed = state.checks.filter(({ status }) => status === Status.FAILED);
  const warned = state.checks.filter(({ status }) => status === Status.WARNING);
  if (!state.connected)
    return (
      <span class="badge bad" role="status">
        podnetd does not answer
      </span>
    );
  if (failed.length > 0)
    return (
      <a class="badge bad" href="#host">
        {count(failed.length, "check")} failed
      </a>
    );
  if (warned.length > 0)
    return (
      <a class="badge warn" href="#host">
        {count(warned.length, "warning")}
      </a>
    );
  return (
    <a class="badge good" href="#host">
      healthy
    </a>
  );
}

export function App({ state }: { state: State }) {
  const view = useView();
  const [chosen, setChosen] = useState<string>();
  const [search, setSearch] = useState("");
  const close = useRef(() => setChosen(undefined));
  const field = useKeys(close.current);
  const pod = chosen === undefined ? undefined : state.pods.get(chosen);
  const shown = [...state.pods.values()].filter(({ name, id, labels, interfaces }) =>
    [name, id, ...Object.entries(labels).flat(), ...interfaces.flatMap((i) => i.addresses)].some(
      (text) => text.includes(search),
    ),
  );
  const contents: Readonly<Record<View, ComponentChildren>> = {
    Network: <Topology state={state} pods={shown} choose={setChosen} />,
    Pods: <PodTable state={state} pods={shown} choose={setChosen} chosen={chosen} />,
    Starts: <Starts state={state} choose={setChosen} />,
    Addresses: <Pools state={state} choose={setChosen} />,
    Policies: <Policies state={state} />,
    Events: <Events events={state.events} />,
    Host: <Host state={state} />,
  };
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header>
        <h1>
          <img src={`${base}icon.svg`} alt="" width="22" height="22" /> podnet
        </h1>
        <span class="muted">{state.info?.hostname}</span>
        <Health state={state} />
        <nav aria-label="Views">
          {views.map((each) => (
            <a
              key={each}
              href={`#${each.toLowerCase()}`}
              aria-current={each === view ? "page" : undefined}
            >
              {each}
            </a>
          ))}
        </nav>
        <label class="search">
          <span class="hidden">Search pods</span>
          <input
            ref={field}
            type="search"
            placeholder="Search pods ( / )"
            value={search}
            onInput={({ currentTarget }) => setSearch(currentTarget.value)}
          />
        </label>
        <ThemeButton />
      </header>
      {state.error === undefined ? null : (
        <p class="error" role="alert">
          {state.error.message} {state.error.hint}
        </p>
      )}
      <div class={pod === undefined ? "columns" : "columns split"}>
        <main id="main" tabIndex={-1}>
          <h2>{view}</h2>
          {contents[view]}
        </main>
        {pod === undefined ? null : (
          <PodDetails
            key={pod.id}
            pod={pod}
            stats={state.stats.get(pod.id)}
            changes={state.changes}
            close={close.current}
          />
        )}
      </div>
    </>
  );
}
