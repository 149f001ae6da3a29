import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import {
  type Network,
  NetworkService,
  type NetworkSchema,
} from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { HealthCheck_Status, NodeService } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { InterfaceState, type PodSchema, PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import {
  type CreatePodRequest,
  type ExecStart,
  PodService,
  WatchPodsResponse_Kind as Kind,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { validateCreate } from "../../../api/validate.ts";
import { PodnetError } from "../../../core/errors.ts";
import { pcapHeader, pcapRecord } from "../../../daemon/traffic/pcap.ts";
import type { NetworkName } from "../../../core/names.ts";

type PodInit = MessageInitShape<typeof PodSchema>;

const web: PodInit = {
  id: "abcdefghijkl",
  name: "web",
  labels: { app: "shop" },
  state: PodState.RUNNING,
  createdAt: { seconds: 1_700_000_000n, nanos: 0 },
  interfaces: [
    {
      network: "default",
      guestName: "eth0",
      mac: "52:54:00:00:00:01",
      mtu: 1500,
      addresses: ["192.168.123.2/24"],
      gateway: "192.168.123.1",
      tap: "pnabcdefgh0",
      bridge: "hyper0",
      slot: 1,
      state: InterfaceState.CONFIGURED,
      observedAddresses: ["192.168.123.2/24"],
      observedMtu: 1500,
      routes: [
        { destination: "0.0.0.0/0", gateway: "192.168.123.1", metric: 50 },
        { destination: "172.16.0.0/12", gateway: "192.168.123.9" },
        { destination: "10.0.0.0/8" },
      ],
    },
  ],
  vm: { pid: 42, accelerator: "tcg", vcpu: 1, memoryMib: 128 },
  guest: { agent: "0.1.0", api: 4244, extension: 1, agentRssKib: 900 },
  spans: [
    { step: "store.commit", startMs: 0, durationMs: 0.4, detail: "192.168.123.2/24" },
    { step: "vm.boot", startMs: 0.5, durationMs: 1430 },
  ],
};
const db: PodInit = {
  id: "mnopqrstuvwx",
  name: "db",
  state: PodState.FAILED,
  reason: "the guest wrote \u001b[31mred",
  failure: { code: "AGENT_TIMEOUT", message: "The agent did not answer", hint: "See its console" },
};

/**
 * What the pod "db" prints: title, clipboard, answer-back, a C1 control, a text turned round, a
 * byte that is no UTF-8.
 */
export const hostilePrint = Buffer.concat([
  Buffer.from("\tä€\u001b]0;root@host\u0007\u001b]52;c;cm0=\u0007\u001b[c\u009b31m\u202e\b\u0000"),
  Buffer.from([0xff]),
  Buffer.from("ok\r\n"),
]);

/** What tests look at afterwards. */
export interface Calls {
  readonly creates: CreatePodRequest[];
  readonly deletes: string[];
  readonly execs: ExecStart[];
  readonly inputs: string[];
  /** On consoles. */
  typed: string;
  downs: number;
}

const absent = (idOrName: string): PodnetError =>
  new PodnetError("POD_NOT_FOUND", `Pod "${idOrName}" does not exist`, {
    field: "id_or_name",
    hint: "See podnet list",
  });

function podService(calls: Calls): Partial<ServiceImpl<typeof PodService>> {
  const known = [web, db];
  const find = (ref: string): PodInit => {
    const found = known.find((pod) => pod.name === ref || pod.id === ref);
    if (found === undefined) throw absent(ref);
    return found;
  };
  return {
    create: () => ({ pod: web }),
    async *createStream(request, context) {
      calls.creates.push(request);
      const { spec, planOnly } = validateCreate(request, { network: "default" as NetworkName });
      if (planOnly) {
        const lines = ["add link pnabc type tap", "evil \u001b]0;x\u0007"];
        const sections = [{ step: "tap.open", title: "Open the tap", lines }];
        yield { event: { case: "plan", value: { podId: "abcdefghijkl", sections } } };
        return;
      }
      if (spec.name === "taken") {
        throw new PodnetError("NAME_IN_USE", 'Name "taken" is in use', {
          field: "name",
          hint: "Choose another",
        });
      }
      const step = "vm.boot";
      yield { event: { case: "started", value: { step, title: "Booting the VM" } } };
      if (spec.name === "slow") {
        await new Promise((resolve) => {
          context.signal.addEventListener("abort", resolve, { once: true });
        });
        return;
      }
      yield { event: { case: "finished", value: { step, durationMs: 1430, detail: "tcg" } } };
      yield { event: { case: "pod", value: { ...web, name: spec.name ?? "web" } } };
    },
    get: ({ idOrName }) => ({ pod: find(idOrName) }),
    stop: ({ idOrName, force }) => ({
      pod: { ...find(idOrName), state: PodState.STOPPED, reason: force ? "forced" : "" },
    }),
    pause: ({ idOrName }) => ({ pod: { ...find(idOrName), state: PodState.PAUSED } }),
    resume: ({ idOrName }) => ({ pod: { ...find(idOrName), state: PodState.RUNNING } }),
    update: ({ idOrName, resources }) => {
      const pod = find(idOrName);
      if (resources?.vcpu === 1 || resources?.memoryMib === 128) return { pod };
      throw new PodnetError("UNSUPPORTED", "Fixed when it is made", { hint: "Create it again" });
    },
    async *stats({ idOrName, everyMs }) {
      const interfaces = [
        { guestName: "eth0", rxBytes: 1_234_567n, rxPackets: 1000n, txBytes: 999n, txPackets: 9n },
      ];
      const { name = "" } = find(idOrName === "" ? "web" : idOrName);
      const disk = { path: "/d.img", readBytes: 4096n, writeBytes: 2_000_000n };
      const machine = { cpuS: 1.5, memoryBytes: 60n << 20n, memoryLimitBytes: 256n << 20n };
      yield { pods: [{ name, interfaces, machine: { ...machine, disks: [disk, disk] } }] };
      if (everyMs === 0) return;
      const rates = { rxBytesPerS: 12_345, txBytesPerS: 0 };
      const diskRates = { readBytesPerS: 0, writeBytesPerS: 500 };
      const again = {
        ...machine,
        rates: { cpuPercent: 12.34 },
        disks: [{ ...disk, rates: diskRates }, disk],
      };
      yield {
        pods: [
          { name, machine: again, interfaces: interfaces.map((each) => ({ ...each, rates })) },
          { name: "off" },
        ],
      };
    },
    async *capture({ idOrName, maxPackets, snapBytes }, { signal }) {
      find(idOrName);
      yield { data: pcapHeader(snapBytes) };
      const packet = pcapRecord({ timeNs: 0n, bytes: new Uint8Array(10), length: 60 });
      yield { data: Buffer.concat([packet, packet]), lost: 3n };
      if (maxPackets > 0n) return;
      await new Promise((resolve) => {
        signal.addEventListener("abort", resolve, { once: true });
      });
    },
    list: ({ labels }) => ({
      pods: known.filter((pod) =>
        Object.entries(labels).every(([key, value]) => pod.labels?.[key] === value),
      ),
      cursor: 7n,
    }),
    start({ idOrName }) {
      const pod = find(idOrName);
      if (pod.state === PodState.RUNNING) {
        throw new PodnetError("WRONG_STATE", `Pod "${idOrName}" is running`, {
          hint: "Only a stopped or failed pod can be started",
        });
      }
      return { pod: { ...pod, state: PodState.RUNNING } };
    },
    delete({ idOrName, force }) {
      if (idOrName === "stuck" && !force) {
        throw new PodnetError("QMP_TIMEOUT", "QEMU does not answer", { hint: "Add --force" });
      }
      calls.deletes.push(idOrName);
      const found = known.find((pod) => pod.name === idOrName || pod.id === idOrName);
      return { existed: found !== undefined, id: found?.id ?? "", name: found?.name ?? "" };
    },
    async *watch({ after }) {
      const time = { seconds: 1_700_000_000n, nanos: 5_000_000 };
      if (after === undefined) {
        yield { cursor: 1n, time, kind: Kind.SNAPSHOT, pod: web };
        yield { cursor: 1n, time, kind: Kind.SYNCED };
      }
      yield {
        cursor: 2n,
        time,
        kind: Kind.STEP,
        pod: db,
        span: { step: "nic.plug", durationMs: 3 },
        text: "nic.plug 3.0 ms",
      };
      if (after === 99n) {
        throw new PodnetError("EVENTS_LOST", "Event 99 is no longer kept", { hint: "Start again" });
      }
    },
    async *exec(requests) {
      for await (const { input } of requests) {
        if (input.case === "start") {
          calls.execs.push(input.value);
          find(input.value.idOrName);
          yield { output: { case: "started", value: { podId: "abcdefghijkl" } } };
          const [program] = input.value.args;
          if (program === "nosuch") {
            yield { output: { case: "exit", value: { code: 127 } } };
            return;
          }
        } else if (input.case === "stdin") {
          yield { output: { case: "stdout", value: input.value } };
        } else if (input.case === "closeStdin") {
          yield { output: { case: "stderr", value: Buffer.from("bye\n") } };
          yield { output: { case: "exit", value: { code: 3 } } };
          return;
        } else if (input.case === "resize") calls.inputs.push(`resize ${input.value.rows}`);
        else if (input.case === "signal") {
          calls.inputs.push(`signal ${input.value.signal}`);
          yield { output: { case: "exit", value: { code: 128 + input.value.signal } } };
          return;
        }
      }
    },
    async *console({ idOrName, noFollow }, context) {
      find(idOrName);
      if (idOrName === "db") {
        // Cut within a character.
        yield { data: hostilePrint.subarray(0, 3) };
        yield { data: hostilePrint.subarray(3) };
        return;
      }
      yield { data: Buffer.from("booting\r\n") };
      if (noFollow) return;
      await new Promise((resolve) => {
        context.signal.addEventListener("abort", resolve, { once: true });
      });
    },
    async *openConsole(requests) {
      for await (const { input } of requests) {
        if (input.case === "open") {
          if (input.value.idOrName === "db") {
            throw new PodnetError("WRONG_STATE", "Somebody types on this console: uid 7", {
              hint: "Read along",
            });
          }
          yield { data: Buffer.from("login: ") };
        } else if (input.case === "data") {
          calls.typed += Buffer.from(input.value).toString();
          // As a terminal in the guest echoes; ctrl-d ends its machine.
          yield { data: input.value };
          if (input.value.includes(4)) return;
        }
      }
    },
    verify: ({ idOrName }) => ({
      podId: find(idOrName).id ?? "",
      ok: idOrName === "web",
      checks: [
        {
          subject: "link pnabcdefgh0 mtu",
          witness: "netlink",
          wanted: "1500",
          found: idOrName === "web" ? "1500" : "1400",
          ok: idOrName === "web",
        },
      ],
    }),
  };
}

const network: MessageInitShape<typeof NetworkSchema> = {
  name: "default",
  bridge: "hyper0",
  mtu: 1500,
  subnets: [
    {
      cidr: "192.168.123.0/24",
      gateway: "192.168.123.1",
      size: "256",
      free: "252",
      used: "1",
      reserved: "3",
      quarantined: "0",
    },
  ],
};

/**
 * Plays podnetd on the other side of a real socket: fixed answers to every call, so that what the
 * command prints can be told in advance. The daemon's own tests run the real one.
 */
export function playDaemon(): { calls: Calls; routes: (router: ConnectRouter) => void } {
  const calls: Calls = { creates: [], deletes: [], execs: [], inputs: [], typed: "", downs: 0 };
  const routes = (router: ConnectRouter): void => {
    addService(router, PodService, podService(calls));
    addService(router, NetworkService, {
      list: () => ({ networks: [network] }),
      get({ name }) {
        if (name === "default") return { network: network as Network };
        throw new PodnetError("NETWORK_NOT_FOUND", `Network "${name}" does not exist`);
      },
    });
    addService(router, NodeService, {
      info: () => ({
        version: "9.9.9",
        pid: 7,
        hostname: "host",
        driver: "qemu",
        qemuVersion: "7.2.22",
        machineArch: "arm64",
        accelerator: "tcg",
        pods: { running: 1, failed: 1 },
      }),
      health: () => ({
        ok: false,
        checks: [
          { name: "store", status: HealthCheck_Status.OK },
          {
            name: "firewall",
            status: HealthCheck_Status.FAILED,
            message: "Chain HYPER is gone",
            hint: "Restart podnetd",
          },
        ],
      }),
      down({ planOnly }) {
        if (!planOnly) calls.downs++;
        return { removed: ["pod web", "bridge hyper0"] };
      },
    });
  };
  return { calls, routes };
}
