import { resolve } from "node:path";
import { create } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import { PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { AttachPodRequestSchema, PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { validateAttach } from "../../../api/validate/attach.ts";
import { parseNetworkName } from "../../../core/names.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const theirs = {
  id: "abcdefghijkl",
  name: "theirs",
  state: PodState.RUNNING,
  vm: { pid: 7, accelerator: "tcg", attached: true, qmpSocket: "/run/vm/qmp" },
  guest: { kind: "none", cannot: ["exec: nothing would run it"] },
};
const plan = {
  sections: [{ step: "vm.attach", title: "The machine", lines: ["QMP /run/vm/qmp"] }],
};
const asked: unknown[] = [];
const played: Partial<ServiceImpl<typeof PodService>> = {
  attach: (request) => {
    asked.push(validateAttach(request, { network: parseNetworkName("default") }));
    return request.planOnly ? { plan } : { pod: theirs };
  },
  detach: (request) => {
    asked.push({ idOrName: request.idOrName, force: request.force });
    return { id: theirs.id, name: theirs.name, existed: request.idOrName === "theirs" };
  },
  get: () => ({ pod: theirs }),
};
const server = await serve((router: ConnectRouter) => addService(router, PodService, played));
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test.serial(
  "attach turns its flags into sockets, absolute, and a spec without a machine",
  async (t) => {
    const words = ["attach", "--qmp", "vm/qmp", "--channel", "/c0", "--tty", "/c1", "-n", "theirs"];
    const { out: stdout, code: exitCode } = await podnet(
      [...words, "--address", "192.168.123.9"],
      here,
    );
    t.is(exitCode, 0);
    t.regex(stdout, /^theirs {2}abcdefghijkl {2}running/);
    t.like(asked.pop(), {
      planOnly: false,
      spec: {
        name: "theirs",
        attached: { qmp: resolve("vm/qmp"), channel: "/c0", tty: "/c1" },
        interfaces: [{ network: "default", addresses: ["192.168.123.9"] }],
      },
    });
  },
);

test.serial("attach --plan prints the plan; -q the id", async (t) => {
  const { out: stdout } = await podnet(["attach", "--qmp", "/q", "--plan"], here);
  t.is(stdout, "The machine vm.attach\n  QMP /run/vm/qmp\n");
  t.is((await podnet(["attach", "--qmp", "/q", "-q"], here)).out, "abcdefghijkl\n");
});

test.serial("detach reports what was there; get whose machine it is", async (t) => {
  t.is((await podnet(["detach", "theirs"], here)).out, "Detached theirs\n");
  t.is((await podnet(["detach", "-f", "other"], here)).out, "other is gone already\n");
  t.deepEqual(asked.pop(), { idOrName: "other", force: true });
  const { out: stdout } = await podnet(["get", "theirs"], here);
  t.regex(stdout, /Machine +foreign, by \/run\/vm\/qmp/);
  t.regex(stdout, /Guest +none/);
});

for (const [what, words, field] of [
  ["without a socket's channel a tty", ["--tty", "/t"], "tty_socket"],
  ["for a channel no agent", ["--channel", "/c", "--agent", "none"], "boot.agent"],
  ["a hyperstart without its channel", ["--agent", "hyperstart"], "channel_socket"],
] as const)
  test.serial(`attach refuses ${what}`, async (t) => {
    const { err: stderr, code: exitCode } = await podnet(["attach", "--qmp", "/q", ...words], here);
    t.is(exitCode, 2);
    t.true(stderr.includes(`field: ${field}`), stderr);
  });

test("attach refuses what is the machine's own, in the request", (t) => {
  for (const spec of [
    { resources: { memoryMib: 128 } },
    { boot: { kernel: "/k" } },
    { boot: { disks: [{ path: "/d" }] } },
    { boot: { cloudInit: { userData: "" } } },
  ]) {
    const request = create(AttachPodRequestSchema, { spec, qmpSocket: "/q" });
    const refused = () => validateAttach(request, { network: parseNetworkName("default") });
    t.throws(refused, { code: "INVALID_ARGUMENT" });
  }
});
