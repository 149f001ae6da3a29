import test from "ava";
import { dualOverlay, openHosts } from "../lab/hosts.ts";
import { until } from "../lab/until.ts";

test("podnetd says of each host whether it can be reached through the overlay, a stand-in of flannel's too", async (t) => {
  // (Of podnetd, which has it of this process.)
  process.env["PODNET_OVERLAY_PROBE_S"] = "1";
  await using lab = await openHosts({ kinds: ["podnet", "flannel"], overlay: dualOverlay });
  const [one, two] = lab.hosts;
  if (one === undefined || two === undefined) throw new Error("No hosts");
  await Promise.all([one.start(), two.start()]);
  const answers = (word: string): Promise<unknown> =>
    until(
      `${two.address} ${word}`,
      async () => {
        const lines = (await one.podnetd.podnet("nodes")).split("\n");
        return lines.some((line) => line.includes(two.address) && line.includes(` ${word} `));
      },
      100_000,
    );
  await answers("yes");
  await two.machine.run("ip", "link", "set", "flannel.1", "down");
  await answers("no");
  // Of the other's lease, too, it is known how long it lasts: etcd is asked.
  const lines = (await one.podnetd.podnet("nodes")).split("\n");
  const theirs = lines.find((line) => line.includes(two.address));
  t.regex(theirs ?? "", / \d+ (s|min) old, 23 h left /);
});
