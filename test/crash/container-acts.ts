import { writeFileSync } from "node:fs";
import path from "node:path";
import { pendingName, renderPending } from "../../cni/protocol/pending.ts";
import { isPodnetError } from "../../core/errors.ts";
import { bodyOf } from "../cni/cni-rig.ts";
import { hostVeth, type ContainerLane, type Said } from "./container-lane.ts";
import { type Allowed, either, type Footing, settled } from "./container-look.ts";
import { restart } from "./pods.ts";
import type { Machine } from "../lab/lab.ts";

/** What is done to containers. */
export type ContainerOperation =
  /** With a port, rates both ways, and a macvlan beside it. */
  | "add"
  | "add-plain"
  | "del"
  /** By OpenShift SDN's form: a pair that its plugin made is attached, and taken off again. */
  | "openshift"
  | "gc"
  /** A start that finds a container whose link has lost what it had, one half attached, and a DEL written down. */
  | "recover"
  | "install"
  | "uninstall"
  /** `podnet down` with a container attached and the plugin installed. */
  | "down";

export interface ContainerActs {
  /** Counted from here on; absent: the act is podnetd's start itself. */
  readonly from?: string;
  /** Its failpoints; others that come by then are of looks at the host. */
  readonly only?: RegExp;
  /** Asked of a podnetd that runs and of which nothing is left afterwards but what is made here; unless `from` is there it has ended then. */
  prepare(site: ContainerLane): Promise<void>;
  /** Does it with a podnetd that may end in the middle; what containers may have afterwards. */
  act(site: ContainerLane, patienceMs: number): Promise<Allowed>;
}

const whole = {
  runtimeConfig: {
    portMappings: [{ hostPort: 8083, containerPort: 80, protocol: "tcp" }],
    bandwidth: { ingressRate: 80_000_000, egressRate: 80_000_000 },
  },
};

const ofFiles = /^(?:commit:(?:insert|delete) meta|file:.* (?:podnet-cni|10-podnet.conflist)\b)/;

/** Who was answered knows; who was not has to ask again. */
const after = (
  said: Said | undefined,
  done: Footing,
  refused: readonly Footing[],
): readonly Footing[] => (said === undefined ? either : said.exit === 0 ? [done] : refused);

export const containerActs: Readonly<Record<ContainerOperation, ContainerActs>> = {
  add: {
    from: "commit:claim attachment:before",
    prepare: ({ lane, containers: [one] }) =>
      lane.lab.host
        .run("ip", "link", "add", "link", "lan0", "name", "mv0", "type", "macvlan")
        .then(() =>
          lane.lab.host.run("ip", "link", "set", "mv0", "netns", one.name, "name", "macvlan0"),
        )
        .then(() => {}),
    async act(site, patienceMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { config: whole, patienceMs });
      return new Map([[one, after(said, "attached", ["gone"])]]);
    },
  },

  "add-plain": {
    from: "commit:claim attachment:before",
    prepare: async () => {},
    async act(site, patienceMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { patienceMs });
      return new Map([[one, after(said, "attached", ["gone"])]]);
    },
  },

  del: {
    from: "commit:detaching:before",
    prepare: (site) => attached(site, site.containers[0], whole),
    async act(site, patienceMs) {
      const [one] = site.containers;
      const said = await site.ask("DEL", one, { patienceMs });
      return new Map([[one, after(said, "gone", either)]]);
    },
  },

  openshift: {
    from: "commit:claim attachment:before",
    async prepare({ lane, containers: [one] }) {
      const peer = ["peer", "name", "eth0", "netns", one.name];
      await lane.lab.host.run("ip", "link", "add", hostVeth, "type", "veth", ...peer);
    },
    async act(site, patienceMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { hostVeth, patienceMs });
      if (said?.exit === 0) {
        const { ips } = JSON.parse(said.stdout) as { ips: { address: string }[] };
        await one.run("ip", "addr", "add", ips[0]?.address ?? "", "dev", "eth0");
        await one.run("ip", "link", "set", "eth0", "up");
      }
      const gone = await site.ask("DEL", one, { hostVeth, patienceMs });
      if (said === undefined && gone === undefined) return new Map([[one, ["untold", "gone"]]]);
      return new Map([[one, after(gone, "gone", said?.exit === 0 ? either : ["gone"])]]);
    },
  },

  gc: {
    from: "commit:detaching:before",
    // (One to be taken away: of two, who comes by a failpoint first hangs on the moment.)
    async prepare(site) {
      for (const container of site.containers.slice(0, 2)) await attached(site, container);
    },
    async act(site, patienceMs) {
      const [kept, stale] = site.containers;
      const valid = [{ containerID: kept.name, ifname: "eth0" }];
      const config = { "cni.dev/valid-attachments": valid };
      const said = await site.ask("GC", kept, { config, patienceMs });
      return new Map<Machine, readonly Footing[]>([
        [kept, ["attached"]],
        [stale, after(said, "gone", either)],
      ]);
    },
  },

  recover: {
    async prepare(site) {
      const [broken, asked, half] = site.containers;
      await restart(site.lane, ["commit:attached:before#3=kill"]);
      await attached(site, broken, whole);
      await attached(site, asked);
      await site.ask("ADD", half);
      if ((await site.lane.ended(5000)) === undefined)
        throw new Error("The third ADD kills nobody");
      await broken.run("ip", "addr", "flush", "dev", "eth0");
      await site.lane.lab.host.run(
        "sh",
        "-c",
        "for at in /sys/class/net/pi*; do ip link del ${at##*/}; done",
      );
      const { env, config } = JSON.parse(bodyOf({ command: "DEL", container: asked })) as {
        env: Record<string, string>;
        config: string;
      };
      const file = path.join(site.pending, pendingName(asked.name, "eth0"));
      writeFileSync(file, renderPending(env, config, Date.now()));
    },
    act: async ({ containers: [broken] }) => new Map([[broken, ["attached"] as const]]),
  },

  install: {
    from: "commit:insert meta:before",
    only: ofFiles,
    prepare: async () => {},
    act: (site) => told(() => site.lane.client.cni.install(site.installed)),
  },

  uninstall: {
    from: "commit:insert meta:before",
    only: ofFiles,
    prepare: async (site) => void (await site.lane.client.cni.install(site.installed)),
    async act({ lane }) {
      // Who is told that it failed asks again.
      for (let asked = 0; asked < 2; asked++) await told(() => lane.client.cni.uninstall({}));
      return new Map();
    },
  },

  down: {
    from: "commit:detaching:before",
    async prepare(site) {
      await attached(site, site.containers[0], whole);
      await site.lane.client.cni.install(site.installed);
    },
    async act(site) {
      const [one] = site.containers;
      let done = true;
      await told(async () => {
        done = false;
        await site.lane.client.node.down({});
        done = true;
      });
      return new Map([[one, done ? ["gone"] : either]]);
    },
  },
};

/** Asks podnetd, which may end meanwhile, or refuse. */
async function told(ask: () => Promise<unknown>): Promise<Allowed> {
  try {
    await ask();
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
  }
  return new Map();
}

async function attached(
  site: ContainerLane,
  container: Machine,
  config: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const said = await site.ask("ADD", container, { config });
  if (said?.exit !== 0) throw new Error(`Nothing is armed, and still: ${said?.stdout}`);
}

/** Takes away whatever a case has made; what is left of it then, and does not belong there. */
export async function cleared(site: ContainerLane): Promise<readonly string[]> {
  const { lane, containers } = site;
  for (const container of containers) {
    const said = await site.ask("DEL", container);
    if (said?.exit !== 0) return [`DEL of ${container.name} fails: ${said?.stdout}`];
    await container.run("sh", "-c", "ip link del macvlan0 2>/dev/null || true");
  }
  await lane.client.cni.uninstall({});
  const problems = await settled(site, new Map());
  await lane.lab.host.run("sh", "-c", `ip link del ${hostVeth} 2>/dev/null || true`);
  const files = site.files().map((file) => `${file} stays`);
  return [...problems, ...files, ...(await lane.changes(site.alone))];
}
