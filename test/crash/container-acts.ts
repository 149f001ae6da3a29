import { writeFileSync } from "node:fs";
import path from "node:path";
import { pendingName, renderPending } from "../../cni/protocol/pending.ts";
import { isPodnetError } from "../../core/errors.ts";
import { bodyOf } from "../cni/cni-rig.ts";
import { hostVeth, type ContainerWorker, type Said } from "./container-worker.ts";
import { type Allowed, either, type Footing, converged } from "./container-look.ts";
import { restart } from "./pods.ts";
import type { Machine } from "../lab/lab.ts";

/** What is done to containers. */
export type ContainerOperation =
  /** With a port, rates both ways, and a macvlan alongside it. */
  | "add"
  | "add-plain"
  | "del"
  /** By OpenShift SDN's form: a pair that its plugin made is attached, and taken off again. */
  | "openshift"
  | "gc"
  /**
   * A start that finds a container whose link has lost what it had, one half attached, and a DEL
   * written down.
   */
  | "recover"
  | "install"
  | "uninstall"
  /** `podnet down` with a container attached and the plugin installed. */
  | "down";

/** What has come of it. */
export interface Acted {
  /** What containers may have afterwards. */
  readonly allowed: Allowed;
  /** What podnetd has answered, where it says that something failed. */
  readonly reported: string;
}

export interface ContainerActs {
  /** Counted from here on; absent: the act is podnetd's start itself. */
  readonly from?: string;
  /** Its failpoints; others that come by then are of looks at the host. */
  readonly only?: RegExp;
  /**
   * Asked of a podnetd that runs and of which nothing is left afterwards but what is made here;
   * unless `from` is there it has ended then.
   */
  prepare(site: ContainerWorker): Promise<void>;
  /** Does it with a podnetd that may end in the middle. */
  act(site: ContainerWorker, timeoutMs: number): Promise<Acted>;
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
    prepare: ({ worker, containers: [one] }) =>
      worker.lab.host
        .run("ip", "link", "add", "link", "lan0", "name", "mv0", "type", "macvlan")
        .then(() =>
          worker.lab.host.run("ip", "link", "set", "mv0", "netns", one.name, "name", "macvlan0"),
        )
        .then(() => {}),
    async act(site, timeoutMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { config: whole, timeoutMs });
      return answered(new Map([[one, after(said, "attached", ["gone"])]]), said);
    },
  },

  "add-plain": {
    from: "commit:claim attachment:before",
    prepare: async () => {},
    async act(site, timeoutMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { timeoutMs });
      return answered(new Map([[one, after(said, "attached", ["gone"])]]), said);
    },
  },

  del: {
    from: "commit:detaching:before",
    prepare: (site) => attached(site, site.containers[0], whole),
    async act(site, timeoutMs) {
      const [one] = site.containers;
      const said = await site.ask("DEL", one, { timeoutMs });
      return answered(new Map([[one, after(said, "gone", either)]]), said);
    },
  },

  openshift: {
    from: "commit:claim attachment:before",
    async prepare({ worker, containers: [one] }) {
      const peer = ["peer", "name", "eth0", "netns", one.name];
      await worker.lab.host.run("ip", "link", "add", hostVeth, "type", "veth", ...peer);
    },
    async act(site, timeoutMs) {
      const [one] = site.containers;
      const said = await site.ask("ADD", one, { hostVeth, timeoutMs });
      if (said?.exit === 0) {
        const { ips } = JSON.parse(said.stdout) as { ips: { address: string }[] };
        await one.run("ip", "addr", "add", ips[0]?.address ?? "", "dev", "eth0");
        await one.run("ip", "link", "set", "eth0", "up");
      }
      const gone = await site.ask("DEL", one, { hostVeth, timeoutMs });
      if (said === undefined && gone === undefined)
        return { allowed: new Map([[one, ["untold", "gone"]]]), reported: "" };
      const footings = after(gone, "gone", said?.exit === 0 ? either : ["gone"]);
      return answered(new Map([[one, footings]]), said, gone);
    },
  },

  gc: {
    from: "commit:detaching:before",
    // (One to be taken away: of two, who comes by a failpoint first hangs on the moment.)
    async prepare(site) {
      for (const container of site.containers.slice(0, 2)) await attached(site, container);
    },
    async act(site, timeoutMs) {
      const [kept, stale] = site.containers;
      const valid = [{ containerID: kept.name, ifname: "eth0" }];
      const config = { "cni.dev/valid-attachments": valid };
      const said = await site.ask("GC", kept, { config, timeoutMs });
      const allowed = new Map<Machine, readonly Footing[]>([
        [kept, ["attached"]],
        [stale, after(said, "gone", either)],
      ]);
      return answered(allowed, said);
    },
  },

  recover: {
    async prepare(site) {
      const [broken, asked, half] = site.containers;
      await restart(site.worker, ["commit:attached:before#3=kill"]);
      await attached(site, broken, whole);
      await attached(site, asked);
      await site.ask("ADD", half);
      if ((await site.worker.ended()) === undefined)
        throw new Error("The third ADD kills no process");
      await broken.run("ip", "addr", "flush", "dev", "eth0");
      // Without this the missing address could be a later plugin's doing, so soon after its ADD.
      await broken.run("ip", "link", "set", "eth0", "down");
      await site.worker.lab.host.run(
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
    act: async ({ containers: [broken] }) => ({
      allowed: new Map([[broken, ["attached"] as const]]),
      reported: "",
    }),
  },

  install: {
    from: "commit:insert meta:before",
    only: ofFiles,
    prepare: async () => {},
    act: async (site) => ({
      allowed: new Map(),
      reported: await asked(() => site.worker.client.cni.install(site.installed)),
    }),
  },

  uninstall: {
    from: "commit:insert meta:before",
    only: ofFiles,
    prepare: async (site) => void (await site.worker.client.cni.install(site.installed)),
    async act({ worker }) {
      // A caller that got an error asks again.
      const reported: string[] = [];
      for (let times = 0; times < 2; times++)
        reported.push(await asked(() => worker.client.cni.uninstall({})));
      return { allowed: new Map(), reported: reported.join("\n") };
    },
  },

  down: {
    from: "commit:detaching:before",
    async prepare(site) {
      await attached(site, site.containers[0], whole);
      await site.worker.client.cni.install(site.installed);
    },
    async act(site) {
      const [one] = site.containers;
      let done = false;
      const reported = await asked(async () => {
        await site.worker.client.node.down({});
        done = true;
      });
      return { allowed: new Map([[one, done ? ["gone"] : either]]), reported };
    },
  },
};

/** Asks podnetd, which may end meanwhile, or refuse; what it refuses with. */
async function asked(ask: () => Promise<unknown>): Promise<string> {
  try {
    await ask();
    return "";
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
    return thrown.message;
  }
}

const answered = (allowed: Allowed, ...said: readonly (Said | undefined)[]): Acted => ({
  allowed,
  reported: said
    .map((each) => (each === undefined || each.exit === 0 ? "" : each.stdout))
    .join("\n"),
});

async function attached(
  site: ContainerWorker,
  container: Machine,
  config: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const said = await site.ask("ADD", container, { config });
  if (said?.exit !== 0) throw new Error(`Nothing is armed, and still: ${said?.stdout}`);
}

/** Removes whatever a case has made; what is left of it then, and does not belong there. */
export async function cleared(site: ContainerWorker): Promise<readonly string[]> {
  const { worker, containers } = site;
  for (const container of containers) {
    const said = await site.ask("DEL", container);
    if (said?.exit !== 0) return [`DEL of ${container.name} fails: ${said?.stdout}`];
    await container.run("sh", "-c", "ip link del macvlan0 2>/dev/null || true");
  }
  await worker.client.cni.uninstall({});
  const problems = await converged(site, new Map());
  await worker.lab.host.run("sh", "-c", `ip link del ${hostVeth} 2>/dev/null || true`);
  const files = site.files().map((file) => `${file} stays`);
  return [...problems, ...files, ...(await worker.changes(site.alone))];
}
