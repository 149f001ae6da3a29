import type { Asked, ServedAddress, ServedBackend, Step } from "./facts.ts";

/** Backends whose paths are shown one by one. */
const mostShown = 16;

/**
 * What becomes of the first packet to a service: which backends it may be led to, and what decides
 * about each. `toBackend` walks on with one of them. Pure.
 */
export function* towardService(
  { protocol, port }: Pick<Asked, "protocol" | "port">,
  service: ServedAddress,
  toBackend: (backend: ServedBackend) => readonly Step[],
): Generator<Step, void> {
  const { name, sticky, ports, notices } = service;
  const asked = port === undefined ? protocol : `${port}/${protocol}`;
  const met = ports.find((each) => each.protocol === protocol && each.port === port);
  if (met === undefined) {
    const all = ports.map((each) => `${each.port}/${each.protocol}`).join(", ");
    yield deny(name, `service ${name} does not have ${asked}, and refuses it: it has ${all}`);
    return;
  }
  const { backends } = met;
  const [only] = backends;
  if (only === undefined) {
    yield deny(name, notices.join("; ") || `service ${name} has no backend of this address family`);
    return;
  }
  const total = backends.reduce((sum, { weight }) => sum + weight, 0);
  const by = sticky ? "by the client's address" : "by chance";
  const count = backends.length === 1 ? "its one backend" : `one of ${backends.length} backends`;
  yield {
    step: "service",
    verdict: "pass",
    rule: name,
    text: `service ${name} leads ${asked} to ${count}${backends.length === 1 ? "" : `, ${by}`}`,
  };
  if (backends.length === 1) {
    yield backendStep(only, "pass", "");
    yield* toBackend(only);
    return;
  }
  const ends = backends.map((backend) => ({ backend, last: lastOf(toBackend(backend)) }));
  const denied = ends.filter(({ last }) => last?.verdict === "deny");
  for (const { backend, last } of ends.slice(0, mostShown)) {
    const share = `${((100 * backend.weight) / total).toFixed(0)} %`;
    const why = last?.verdict === "deny" && last.rule !== "" ? ` (${last.rule})` : "";
    // (A connection that a policy denies to one backend may meet another with the next try.)
    const verdict = last?.verdict === "deny" ? "unknown" : (last?.verdict ?? "pass");
    const denial = last?.verdict === "deny" ? "denied: " : "";
    yield backendStep(backend, verdict, `, ${share}: ${denial}${last?.text ?? ""}${why}`);
  }
  if (ends.length > mostShown)
    yield {
      step: "backend",
      verdict: "pass",
      rule: "",
      text: `${ends.length - mostShown} more backends; ${denied.length} of all are denied`,
    };
  if (denied.length === ends.length) yield deny(name, `every backend of ${name} is denied`);
}

const backendStep = (
  { text, ip, port }: ServedBackend,
  verdict: Step["verdict"],
  more: string,
): Step => ({
  step: "backend",
  verdict,
  rule: "",
  text: `${text === "" ? "" : `${text}, `}${ip} port ${port}${more}`,
});

const deny = (name: string, text: string): Step => ({
  step: "service",
  verdict: "deny",
  rule: name,
  text,
});

/** The step that decides: the first that denies, else one that is not known, else the last. */
const lastOf = (steps: readonly Step[]): Step | undefined =>
  steps.find(({ verdict }) => verdict === "deny") ??
  steps.find(({ verdict }) => verdict === "unknown") ??
  steps.at(-1);
