import { hear } from "./hear.ts";
import { type HostTestimony, parseHostTestimony } from "./testimony.ts";

/**
 * Links, routes and addresses of a network namespace, as npm's `netlink` reads them: this
 * process's, or the one of a path.
 */
export async function hearHostWitness(
  links: readonly string[],
  signal?: AbortSignal,
  netns?: string,
): Promise<HostTestimony> {
  const said = await hear("witness-host.ts", links, signal, netns === undefined ? {} : { netns });
  return parseHostTestimony(said);
}
