import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { parseMac } from "../../core/address.ts";
import { LocalEndpoint } from "../../daemon/overlays/local-endpoint.ts";
import { makeDesired, makeShape } from "../../daemon/overlays/kernel/make-desired.ts";
import { OverlayMemory } from "../../daemon/overlays/records/overlay-memory.ts";
import { Database } from "../../daemon/store/database.ts";
import { run } from "../../linux/processes/command.ts";
import { openLog } from "../../linux/log.ts";
import { Overlays } from "../../network/overlay/overlays.ts";
import type { Host } from "../../overlay/claim.ts";
import { parseConfig } from "../../overlay/flannel/config.ts";
import { noRules } from "../lab/overlay.ts";
import { ownNetns } from "../lab/netns.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();
const quiet = openLog({ component: "test", level: "silent" });
const config = parseConfig('{"Network":"10.77.0.0/16","Backend":{"Type":"vxlan"}}');
const flannels = "0e:11:22:33:44:55";

// What follows the kernel does not keep the process alive.
const alive = setInterval(() => {}, 1000);
test.after.always(() => clearInterval(alive));

test.before(async () => {
  await ownNetns();
  const lines = [
    "link add eth0 type veth peer name far0",
    "link set eth0 up",
    "link set far0 up",
    "addr add 192.0.2.1/24 dev eth0",
    "route add default via 192.0.2.254 dev eth0",
  ];
  await run(["ip", "-batch", "-"], { stdin: `${lines.join("\n")}\n` });
});

/**
 * What this host is to others once podnetd has begun: the local endpoint of an overlay in a podnetd
 * that was started anew.
 */
async function begin(memory: OverlayMemory, overlays: Overlays) {
  const reported: Host[] = [];
  const endpoint = new LocalEndpoint({
    settings: {
      choice: {
        interfaces: [],
        patterns: [],
        canReach: undefined,
        publicIp: undefined,
        publicIp6: undefined,
      },
      extension: false,
      txChecksum: "auto",
    },
    owner: 7n as never,
    memory,
    log: quiet,
    randomBytes: (count) => new Uint8Array(count).fill(0x42),
    conflict: () => undefined,
    foreignMac: (device) => overlays.foreignMac(device),
    onHost: (host) => reported.push(host),
  });
  endpoint.configure(config);
  await until("the host's endpoint", () => reported.length > 0);
  return { endpoint, host: reported.at(-1) as Host };
}

test.serial(
  "flanneld's device keeps its MAC when podnetd takes it over, and for good",
  async (t) => {
    const directory = mkdtempSync(path.join(tmpdir(), "podnet-taken-"));
    t.teardown(() => rmSync(directory, { recursive: true }));
    using db = Database.openIn(directory);
    await using overlays = new Overlays(noRules);
    const known = parseMac(flannels);
    await run(
      `ip link add flannel.1 address ${flannels} type vxlan id 1 local 192.0.2.1 dev eth0 dstport 8472 nolearning`.split(
        " ",
      ) as [string, ...string[]],
    );
    const memory = new OverlayMemory(db, "flannel", quiet);
    // As of a podnetd that was here before flanneld.
    memory.remember({ macs: { 4: parseMac("02:aa:aa:aa:aa:aa") } });
    {
      const { endpoint, host } = await begin(memory, overlays);
      await using _endpoint = endpoint;
      t.like(host.attributes, { type: "vxlan", v4: { vni: 1, mac: known } } as never);
      t.deepEqual(memory.record.macs, { 4: known });
      const shape = makeShape({
        name: "flannel",
        settings: { masquerade: undefined, forward: true },
        config,
        backend: endpoint.backend as never,
        uplink: endpoint.uplink as never,
        macs: endpoint.macs,
        subnets: { v4: "10.77.1.0/24" as never, v6: undefined },
      });
      const desired = makeDesired(shape, []);
      const { macs } = await overlays.ensure(desired, signal);
      t.is(macs.get(4), known);
    }
    // It is podnet's own now: an outside change of its MAC is repaired, not adopted.
    await run(["ip", "link", "set", "flannel.1", "address", "02:bb:bb:bb:bb:bb"]);
    const { endpoint, host } = await begin(new OverlayMemory(db, "flannel", quiet), overlays);
    await using _endpoint = endpoint;
    t.like(host.attributes, { type: "vxlan", v4: { vni: 1, mac: known } } as never);
  },
);
