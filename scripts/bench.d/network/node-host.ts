import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { connectPodnet } from "../../../api/client.ts";
import type { FirewallName } from "../../../network/firewall/open.ts";
import { openLab } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import { standInConfig } from "../../../test/lab/standin.ts";
import { addCrowdRows, addCrowdToHost, model } from "./crowd.ts";

/** What one round of changes cost, milliseconds from API call to answer. */
export interface ChangeFigures {
  readonly publish: number;
  readonly unpublish: number;
  readonly add: number;
  readonly remove: number;
}

/** A host with a podnetd and a pod that is changed. */
export interface NodeHost extends AsyncDisposable {
  change(round: number): Promise<ChangeFigures>;
}

export interface NodeHostOptions {
  readonly directory: string;
  readonly driver: FirewallName;
  /** With `crowdSize` synthetic pods alongside. */
  readonly crowded: boolean;
}

let opened = 0;

/**
 * Starts podnetd with stand-in machines: what is measured is podnet's own, and not a guest in
 * software emulation.
 */
export async function openNodeHost(options: NodeHostOptions): Promise<NodeHost> {
  const { directory, driver, crowded } = options;
  await using stack = new AsyncDisposableStack();
  const { host } = stack.use(await openLab(`net${opened++}-`));
  // As /run of a host is: in memory.
  const runDir = mkdtempSync(path.join(tmpdir(), "podnet-run-"));
  stack.defer(() => rmSync(runDir, { recursive: true, force: true }));
  mkdirSync(directory, { recursive: true });
  symlinkSync(runDir, path.join(directory, "run"));
  const config = `drift_s = 3600
firewall = "${driver}"
limits.requests_per_s = 1000000
network.cidr = "10.88.0.0/20"
${await standInConfig(path.join(directory, "image"))}`;
  const start = () => startPodnetd({ machine: host, directory, config, readyMs: 120_000 });
  let daemon = await start();
  if (crowded) {
    using client = connectPodnet({ socket: daemon.socket });
    await client.pods.create({ spec: { name: model.name, ports: [...model.ports] } });
    await daemon.stop();
    addCrowdRows(daemon.stateDir);
    daemon = await start();
    await addCrowdToHost(host, driver);
  }
  stack.defer(async () => {
    await daemon.tryPodnet("down", "--yes");
    await daemon.stop();
  });
  const client = connectPodnet({ socket: daemon.socket });
  stack.defer(() => client.close());
  await client.pods.create({ spec: { name: "measured" } });
  const held = stack.move();
  const idOrName = "measured";
  const timed = async (call: () => Promise<unknown>): Promise<number> => {
    const begin = performance.now();
    await call();
    return performance.now() - begin;
  };
  return {
    async change(round) {
      const ports = [{ hostIp: "0.0.0.0", hostPort: 40_000 + (round % 1000), podPort: 80 }];
      return {
        publish: await timed(() => client.pods.publishPorts({ idOrName, ports })),
        unpublish: await timed(() => client.pods.unpublishPorts({ idOrName, ports })),
        add: await timed(() => client.pods.addInterface({ idOrName, interface: {} })),
        remove: await timed(() => client.pods.removeInterface({ idOrName, guestName: "eth1" })),
      };
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
