import { create } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import { DiskState, PodSchema, PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { parseDiskName, validateAddDisk } from "../../../api/validate/data-disks.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const disks = [
  { name: "data", path: "/d/data-data.raw", format: "raw", madeMib: 64, state: DiskState.PLUGGED },
  {
    name: "set",
    path: "/srv/set\u001b[2J",
    format: "raw",
    readOnly: true,
    state: DiskState.UNPLUG_PENDING,
  },
];
const pod = create(PodSchema, {
  id: "abcdefghijkl",
  name: "web",
  state: PodState.RUNNING,
  disks,
});
const asked: unknown[] = [];
const played: Partial<ServiceImpl<typeof PodService>> = {
  addDisk: (request) => {
    asked.push(validateAddDisk(request));
    return { pod, name: "data" };
  },
  removeDisk: ({ name }) => {
    asked.push(parseDiskName(name));
    return { pod };
  },
  get: () => ({ pod }),
};
const server = await serve((router: ConnectRouter) => addService(router, PodService, played));
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test.serial("disk add turns its flags into a disk, and an error names the flag", async (t) => {
  await podnet(["disk", "add", "web", "--size", "1G", "--name", "data"], here);
  t.deepEqual(asked.pop(), { name: "data", sizeMib: 1024, readOnly: false });
  const file = ["disk", "add", "web", "--file", "/srv/a", "--format", "qcow2", "--read-only"];
  t.is((await podnet(file, here)).code, 0);
  t.deepEqual(asked.pop(), { file: { path: "/srv/a", format: "qcow2" }, readOnly: true });
  for (const words of [[], ["--size", "1G", "--file", "/a"], ["--size", "much"]])
    t.is((await podnet(["disk", "add", "web", ...words], here)).code, 2);
  const { err, code } = await podnet(
    ["disk", "add", "web", "--size", "1G", "--name", "A", "--read-only"],
    here,
  );
  t.not(code, 0);
  t.regex(err, /--name/);
});

test.serial("disks are listed with their states, and shown with their pod", async (t) => {
  const { out } = await podnet(["disk", "list", "web"], here);
  t.regex(out, /^data +plugged +read and write +64M +raw +\/d\/data-data\.raw$/m);
  t.regex(out, /^set +unplug pending +read only +raw +\/srv\/set/m);
  t.false(out.includes("\u001b[2J"), "a path cannot clear the terminal");
  t.regex(
    (await podnet(["get", "web"], here)).out,
    /^Disks +data \(plugged, \/d\/data-data\.raw\)/m,
  );
  await podnet(["disk", "rm", "web", "data"], here);
  t.is(asked.pop(), "data");
});
