import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { PodSandboxState } from "../../daemon/cri/gen/cri_pb.ts";
import { openCri } from "../lab/cri/client.ts";
import { execIn, openRig } from "./daemon-rig.ts";

test.serial(
  "a sandbox is a machine with the name and DNS that Kubernetes gave, also after a kill of podnetd",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-cri-"));
    t.teardown(() => rmSync(directory, { recursive: true, force: true }));
    const socket = join(directory, "cri.sock");
    await using rig = await openRig(`[cri]\nsocket = "${socket}"\n`);
    let podSandboxId = "";
    const metadata = { name: "web", uid: "u-1", namespace: "default", attempt: 0 };
    const config = {
      metadata,
      hostname: "web-0",
      dnsConfig: { servers: ["10.96.0.10"], searches: ["svc.cluster.local"], options: ["ndots:5"] },
      linux: { sysctls: { "net.core.somaxconn": "321" } },
    };
    {
      using cri = openCri(socket);
      t.deepEqual(
        (await cri.runtime.status({})).status?.conditions.map((each) => each.status),
        [true, true],
      );
      ({ podSandboxId } = await cri.runtime.runPodSandbox({ config }));
      const { stats } = await cri.runtime.podSandboxStats({ podSandboxId });
      t.true((stats?.linux?.memory?.workingSetBytes?.value ?? 0n) > 0n);
      const { defaultInterface } = stats?.linux?.network ?? {};
      t.is(defaultInterface?.name, "eth0");
      t.true((defaultInterface?.txBytes?.value ?? 0n) > 0n, "it has said where it is");
      t.true((stats?.linux?.cpu?.usageCoreNanoSeconds?.value ?? 0n) > 0n);
    }
    const seen = await execIn(
      rig.client,
      podSandboxId,
      "sh",
      "-c",
      "hostname; cat /etc/resolv.conf /proc/sys/net/core/somaxconn",
    );
    for (const wanted of ["web-0", "nameserver 10.96.0.10", "svc.cluster.local", "ndots:5", "321"])
      t.true(JSON.stringify(seen).includes(wanted), `${wanted} in ${JSON.stringify(seen)}`);
    await rig.restart("kill");
    using cri = openCri(socket);
    const { status } = await cri.runtime.podSandboxStatus({ podSandboxId });
    t.is(status?.state, PodSandboxState.SANDBOX_READY);
    t.like(status?.metadata, metadata);
    t.is((await cri.runtime.runPodSandbox({ config })).podSandboxId, podSandboxId);
    await cri.runtime.stopPodSandbox({ podSandboxId });
    const stopped = (await cri.runtime.podSandboxStatus({ podSandboxId })).status;
    t.is(stopped?.state, PodSandboxState.SANDBOX_NOTREADY);
    await cri.runtime.removePodSandbox({ podSandboxId });
    t.deepEqual((await cri.runtime.listPodSandbox({})).items, []);
    cri[Symbol.dispose]();
    t.deepEqual(await rig.changes(), []);
  },
);
