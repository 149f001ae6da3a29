import { unshareNetns } from "../../linux/namespaces/netns.ts";
import { run } from "../../linux/processes/command.ts";

/**
 * Moves this test file's process into a network namespace of its own, with `lo` up. Commands
 * started afterwards are born in it, sockets and taps opened afterwards belong to it, and it ends
 * with the process. Refuses to work outside `scripts/sandbox`, whose private mounts keep /run/netns
 * and /run/xtables.lock apart.
 */
export async function ownNetns(): Promise<void> {
  if (process.env["PODNET_SANDBOX"] !== "1")
    throw new Error("This test changes the network; run it as: scripts/sandbox scripts/ava FILE");
  unshareNetns();
  await run(["ip", "link", "set", "dev", "lo", "up"]);
}
