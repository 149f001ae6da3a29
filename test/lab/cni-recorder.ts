import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import type { ContainerHost } from "./container-host.ts";

/** One call of a plugin: what a runtime sent. */
export interface RecordedCall {
  /** `NAME=value` each, in the order in which they came. */
  readonly env: readonly string[];
  // oxlint-disable-next-line typescript/no-explicit-any -- whatever a runtime sends
  readonly stdin: any;
}

/**
 * Stands in the plugin's place, writes down what it is handed (dash keeps the environment it was
 * started with), and hands it on.
 */
const script = (directory: string, plugin: string): string => `#!/bin/sh
at=${directory}/$(date +%s%N)
cat >"$at.stdin"
tr '\\0' '\\n' <"/proc/$$/environ" | grep ^CNI_ >"$at.env"
exec ${plugin} <"$at.stdin"
`;

/**
 * Writes down what a host's runtimes send to its plugin from now on; `calls` answers it without
 * what differs from run to run.
 */
export function recordCalls(host: ContainerHost): { calls(): RecordedCall[] } {
  const directory = path.join(host.directory, "recorded");
  mkdirSync(directory);
  const plugin = "/opt/cni/bin/podnet-cni";
  const moved = "/opt/podnet-cni";
  renameSync(host.file(plugin), host.file(moved));
  writeFileSync(host.file(plugin), script(directory, moved));
  chmodSync(host.file(plugin), 0o755);
  const read = (name: string): string => readFileSync(path.join(directory, name), "utf8");
  return {
    calls: () => {
      const stems = readdirSync(directory)
        .filter((name) => name.endsWith(".env"))
        .toSorted();
      const all = stems.map((name) => ({
        env: read(name).trim().split("\n"),
        stdin: read(name.replace(/env$/, "stdin")),
      }));
      const known = sameEverywhere(host.directory, all.map(({ env }) => env).flat());
      return all.map(({ env, stdin }) => ({
        env: env.map(known),
        stdin: JSON.parse(known(stdin)) as unknown,
      }));
    },
  };
}

/**
 * Replaces what chance or the time makes: IDs, names of links, MACs of the host's ends,
 * directories.
 */
function sameEverywhere(directory: string, env: readonly string[]): (text: string) => string {
  const ids = env.flatMap((text) => /^CNI_CONTAINERID=([0-9a-f]{64})$/.exec(text)?.[1] ?? []);
  const unique = [...new Set(ids)];
  return (text) => {
    const named = unique.reduce(
      (said, id, i) =>
        said
          .replaceAll(id, `${i + 1}`.padStart(64, "0"))
          // (podman names a container by the beginning of its ID, too.)
          .replaceAll(`"${id.slice(0, 12)}"`, `"${`${i + 1}`.padStart(12, "0")}"`),
      text,
    );
    return named
      .replaceAll(path.dirname(directory), "/test")
      .replaceAll(/-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "-0")
      .replaceAll(/\/proc\/\d+\/ns/g, "/proc/1/ns")
      .replaceAll(/\bp[ci][a-z2-7]{12}\b/g, (link) => `${link.slice(0, 2)}aaaaaaaaaaaa`)
      .replaceAll(/"mac":"(?!0a:58)[0-9a-f:]{17}"/g, '"mac":"02:00:00:00:00:01"');
  };
}

/** A call without the order of what comes in any: variables, and what CNI_ARGS holds. */
export const withoutOrder = ({ env, stdin }: RecordedCall): RecordedCall => ({
  env: env.map((text) => (text.startsWith("CNI_ARGS=") ? argsSorted(text) : text)).toSorted(),
  stdin,
});

const argsSorted = (text: string): string =>
  `CNI_ARGS=${text.slice("CNI_ARGS=".length).split(";").toSorted().join(";")}`;
