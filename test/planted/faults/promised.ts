import type { Fault } from "../fault.ts";

/**
 * Faults of promises that no other file has: each is noticed by a test that its row in
 * docs/promises.md links to.
 */
export const promisedFaults: readonly Fault[] = [
  {
    kind: "release",
    name: "each pod that goes leaves 200 KiB in podnetd",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "host.published.cut(live.plan.podId);",
    put: "host.published.cut(live.plan.podId);\n    const kept = globalThis as { kept?: Buffer[] };\n    (kept.kept ??= []).push(Buffer.alloc(200 * 1024));",
    noticedBy: {
      file: "test/soak/soak.test.ts",
      title: "20 pods created and deleted leave nothing",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a guest that was asked to power off is asked once more",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "const { guest, identity } = live;\n    live.guest = undefined;",
    put: "const { guest, identity } = live;",
    noticedBy: {
      file: "test/unit/daemon/pods/steps.test.ts",
      title: "taking down twice is taking down once",
    },
  },
  {
    kind: "bound",
    name: "an address rests a moment less than it is to",
    file: "ipallocator/ledger.ts",
    find: "this.#records.sinceOf(oldest) > deadline) return;",
    put: "this.#records.sinceOf(oldest) > deadline + 1) return;",
    noticedBy: {
      file: "test/fuzz/ipallocator-model.test.ts",
      title: "192.168.123.0/24 does what the model does",
    },
  },
  {
    kind: "bound",
    name: "a frame one byte above the limit is believed",
    file: "guest-init/protocol/assembler.ts",
    find: "length > limit) {",
    put: "length > limit + 1) {",
    noticedBy: {
      file: "test/fuzz/guest-frames.test.ts",
      title: "1,000 control channels that announce much and send nothing hold what has arrived",
    },
  },
  {
    kind: "record",
    name: "what QEMU sends that cannot be read is called a lost connection",
    file: "hypervisor/qmp/client.ts",
    find: 'this.#fail(toPodnetError(error, "QMP_PROTOCOL"));',
    put: "this.#fail(connectionLost(error));",
    noticedBy: {
      file: "test/vm/standin-bad.test.ts",
      title:
        "machines and guests that break the rules, all at once: each fails in its own way, and is undone",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "the same request id makes two pods",
    file: "daemon/pods/store/requests.ts",
    find: "this.#running.set(id, { digest, outcome });",
    put: "",
    noticedBy: {
      file: "test/vm/daemon-failures.test.ts",
      title: "with a request id two callers get one pod, though the first goes away",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "the pool of test files forgets what runs",
    file: "scripts/pool.ts",
    find: "others.reduce((sum, { weight }) => sum + weight, job.weight)",
    put: "job.weight",
    noticedBy: {
      file: "test/unit/scripts/pool.test.ts",
      title: "jobs run side by side up to the capacity, the longest first",
    },
  },
  {
    kind: "record",
    name: "a skipped test is not counted",
    file: "scripts/run-ava.ts",
    find: "skipped += Number(total[1]);",
    put: "skipped += 0;",
    noticedBy: {
      file: "test/unit/scripts/run-stage.test.ts",
      title:
        "a test that fails once is named as unsteady, and fails the run when it is strict; a skip is counted",
    },
  },
  {
    kind: "record",
    name: "a promise loses the link to its test",
    file: "docs/promises.md",
    find: "[benchmark of a pod's network](../scripts/bench.d/pod.ts), [benchmark of clones](../scripts/bench.d/factory.ts)",
    put: "none",
    noticedBy: {
      file: "test/static/test-links.test.ts",
      title: "every row of promises.md links to a test",
    },
  },
  {
    kind: "release",
    name: "a pod that stops lets go of its ports",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "host.published.cut(live.plan.podId);",
    put: "(host.published as { release?(pod: unknown): void }).release?.(live.plan.podId);",
    noticedBy: {
      file: "test/vm/standin-ports.test.ts",
      title: "a stopped pod keeps its ports, and refuses who asks; a deleted one frees them",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "the writers of an image are not looked up",
    file: "daemon/pods/plan/image-holders.ts",
    find: 'use: writes ? "writes" : "reads" });',
    put: 'use: "reads" });',
    noticedBy: {
      file: "test/vm/standin-disks.test.ts",
      title: "an image that is written through is one pod's alone",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a lease says nothing of IPv6 where flannel says null",
    file: "overlay/flannel/value.ts",
    find: "PublicIPv6: publicIp6 ?? null,",
    put: "PublicIPv6: publicIp6,",
    noticedBy: {
      file: "test/unit/overlay/formats.test.ts",
      title: "values are flannel's, byte for byte",
    },
  },
  {
    kind: "mark",
    name: "flanneld's MAC is not taken over",
    file: "daemon/overlays/local-endpoint.ts",
    find: "await this.#adoptMacs(config);",
    put: "",
    noticedBy: {
      file: "test/kernel/overlay-taken-over.test.ts",
      title: "flanneld's device keeps its MAC when podnetd takes it over, and for good",
    },
  },
  {
    kind: "repair",
    name: "lo stays down in a guest",
    file: "guest-init/agent/network/loopback.ts",
    find: "if (lo !== undefined && !lo.up) netlink",
    put: 'if (lo !== undefined && lo.name === "") netlink',
    build: "agent",
    noticedBy: {
      file: "test/kernel/agent-configure.test.ts",
      title: "lo is up again, with its addresses, when something takes it down",
    },
  },
  {
    kind: "record",
    name: "what is known of peers is forgotten with the boot",
    file: "daemon/overlays/overlay-host.ts",
    find: "if (recalled !== undefined) this.#parts.kernel.recall(recalled);",
    put: "",
    noticedBy: {
      file: "test/overlay/daemon-rebooted.test.ts",
      title: "a host that is booted while etcd is away leads to the others as it knew them",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a paused pod runs on after a start of podnetd",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "noteRunStateOrLater(live, state, recovery);",
    put: "noteRunStateOrLater(live, state, recovery);\n    await vm.resume(signal);",
    noticedBy: {
      file: "test/vm/lifecycle.test.ts",
      title: "a podnetd that is started after a kill takes a paused pod over as paused",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a disk that ends within a sector is booted",
    file: "hypervisor/disks/image-file.ts",
    find: "return bytes % 512 === 0 ? bytes : partSectors;",
    put: "return bytes;",
    noticedBy: {
      file: "test/vm/standin-disks.test.ts",
      title: "wrong images are reported before anything is made",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "the rules of the former firewall stay",
    file: "network/firewall/open.ts",
    find: "...(await formerChains(options, ledger, signal)),",
    put: "...((await formerChains(options, ledger, signal)).length > 0 ? [] : []),",
    noticedBy: {
      file: "test/kernel/firewall-switch.test.ts",
      title:
        "between nftables and iptables-nft and back there is no gap, and nothing of the other stays",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "an interface that is removed cuts off all of its pod",
    file: "daemon/pods/interfaces/live-leaving.ts",
    find: 'await host.network.remove({ kind: "ports", pod: live.plan.podId, tap: nic.tap }, signal);',
    put: 'await host.network.remove({ kind: "ports", pod: live.plan.podId }, signal);',
    noticedBy: {
      file: "test/vm/interfaces.test.ts",
      title:
        "a flow on eth0 loses nothing while eth1 is added, changed and removed, and its own routes stay",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a start takes pods that run off their bridge",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "  records.keep(row);\n",
    put: '  records.keep(row);\n  await host.network.remove({ kind: "ports", pod: row.id }, signal);\n  await new Promise((resolve) => setTimeout(resolve, 500));\n',
    noticedBy: {
      file: "test/vm/daemon-uninterrupted.test.ts",
      title:
        "what flows through a running pod loses nothing while podnetd is stopped, killed and started; a deleted bridge comes back under it",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a start ends the connections to what pods have published",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "  records.keep(row);\n",
    put: '  records.keep(row);\n  await host.network.remove({ kind: "published", of: ports }, signal);\n  await host.network.remove({ kind: "connections", of: [ports] }, signal);\n  await new Promise((resolve) => setTimeout(resolve, 500));\n',
    noticedBy: {
      file: "test/vm/ports-flows.test.ts",
      title: "a connection from outside loses nothing while podnetd is stopped, killed and started",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a pod's id comes from the kernel, and not from what a history gives",
    file: "daemon/pods/plan/plan-new.ts",
    find: "const id = podIdFromBytes(host.randomBytes(12));",
    put: "const id = podIdFromBytes(crypto.getRandomValues(host.randomBytes(12) as Uint8Array<ArrayBuffer>));",
    noticedBy: { file: "test/sim/sim.test.ts", title: "A history is a function of its seed" },
    slow: true,
  },
  {
    kind: "record",
    name: "a pod that ended with its host says nothing of its own",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: 'new PodnetError("HOST_RESTARTED", ',
    put: 'new PodnetError("QEMU_EXITED", ',
    noticedBy: {
      file: "test/static/error-codes.test.ts",
      title: "HOST_RESTARTED is thrown somewhere, and a test makes it happen",
    },
  },
  {
    kind: "undo",
    name: "a recovery forgets a create that was cut short before it is undone",
    file: "daemon/pods/lifecycle/recover.ts",
    find: 'case "creating":\n      await takeDown(row, recovery);',
    put: 'case "creating":',
    noticedBy: {
      file: "test/crash/matrix.test.ts",
      title:
        "a recovery, and the recovery after it, that is killed, fails or hangs at any point leaves one pod that runs or nothing (1 of 3)",
    },
    slow: true,
  },
];
