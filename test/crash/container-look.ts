import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Attachment, AttachmentState } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { lower } from "../../cli/views/pod-view.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { Machine } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { type ContainerWorker, hostVeth } from "./container-worker.ts";

/**
 * What a container can have of podnet's: all of it, or nothing; or all of it but what its own
 * plugin was to do (OpenShift SDN's), which never heard that it was attached.
 */
export type Footing = "attached" | "gone" | "untold";

export const either: readonly Footing[] = ["attached", "gone"];

/** What each container may have; what is not named is to have nothing. */
export type Allowed = ReadonlyMap<Machine, readonly Footing[]>;

/** Longest until what failed is put right, milliseconds. */
const deadlineMs = 20_000;

/** Waits until each container has what it may, or podnetd has ended; what is not so in the end. */
export async function converged(
  site: ContainerWorker,
  allowed: Allowed,
): Promise<readonly string[]> {
  for (const deadline = performance.now() + deadlineMs; ; await delay(50)) {
    const problems = await amiss(site, allowed);
    if (problems.length === 0 || performance.now() > deadline) return problems;
    if ((await site.worker.ended(0)) !== undefined) return problems;
  }
}

/** Waits until no container is on its way. */
export const quiet = ({ worker }: ContainerWorker): Promise<boolean> =>
  until("containers to converge", async () => {
    const { attachments } = await worker.client.cni.list({});
    return attachments.every(({ state }) => state === AttachmentState.READY);
  });

async function amiss(site: ContainerWorker, allowed: Allowed): Promise<readonly string[]> {
  let attachments: readonly Attachment[];
  try {
    ({ attachments } = await site.worker.client.cni.list({}));
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
    return [`podnetd does not answer: ${thrown.message}`];
  }
  const problems: string[] = [...amissOfFiles(site)];
  for (const container of site.containers) {
    const { name } = container;
    const row = attachments.find(({ containerId }) => containerId === name);
    const may = allowed.get(container) ?? ["gone"];
    const footing = row === undefined ? "gone" : may.includes("untold") ? "untold" : "attached";
    if (row !== undefined && row.state !== AttachmentState.READY)
      problems.push(`${name} is on its way: ${lower(AttachmentState, row.state)}`);
    else if (!may.includes(footing)) problems.push(`${name} is ${footing}`);
    else if (footing === "attached" && row !== undefined)
      problems.push(...(await unhealthy(site, container, row)));
    else if (footing === "gone" && (await hasLinkOfOurs(site, container)))
      problems.push(`${name} has a link`);
  }
  return problems;
}

/** (A pair that OpenShift SDN's plugin made is its own to end.) */
const hasLinkOfOurs = async ({ worker }: ContainerWorker, container: Machine): Promise<boolean> =>
  / eth0@/.test(await container.run("ip", "-o", "link")) &&
  !(await worker.lab.host.run("ip", "-o", "link")).includes(` ${hostVeth}@`);

/** By packets, and by what podnet itself says of it. */
async function unhealthy(
  site: ContainerWorker,
  container: Machine,
  { addresses, mac, ifName }: Attachment,
): Promise<readonly string[]> {
  const prevResult = {
    cniVersion: "1.1.0",
    interfaces: [{ name: ifName, mac, sandbox: container.path }],
    ips: addresses.map((address) => ({ address, interface: 0 })),
  };
  const checked = await site.ask("CHECK", container, { config: { prevResult } });
  const reached = await container.reaches("192.168.123.1");
  return [
    ...(checked?.exit === 0 ? [] : [`${container.name}: CHECK says ${checked?.stdout}`]),
    ...(reached ? [] : [`${container.name} does not reach its gateway`]),
  ];
}

/** An installation is whole, or not there. */
function amissOfFiles(site: ContainerWorker): readonly string[] {
  const files = site.files().toSorted();
  if (files.length === 0) return [];
  const whole = ["bin/podnet-cni", "net.d/10-podnet.conflist"];
  if (files.join() !== whole.join()) return [`of an installation there is ${files.join()}`];
  const { dir, binDir } = site.installed;
  const [built, copied] = [plugin, path.join(binDir, "podnet-cni")].map((file) =>
    readFileSync(file),
  );
  const list = readFileSync(path.join(dir, "10-podnet.conflist"), "utf8");
  return [
    ...(built?.equals(copied ?? new Uint8Array()) ? [] : ["the plugin is not whole"]),
    ...(list.endsWith("}\n") ? [] : ["the configuration is not whole"]),
  ];
}

const plugin = path.resolve(import.meta.dirname, "../../build/cni-plugin/podnet-cni");
