import { runSource } from "./run-source.ts";
import { type HostReport, parseHostReport } from "./source-reports.ts";

/**
 * Links, routes and addresses of a network namespace, as npm's `netlink` reads them: this
 * process's, or the one of a path.
 */
export async function queryHostSource(
  links: readonly string[],
  signal?: AbortSignal,
  netns?: string,
): Promise<HostReport> {
  const said = await runSource(
    "host-source.ts",
    links,
    signal,
    netns === undefined ? {} : { netns },
  );
  return parseHostReport(said);
}
