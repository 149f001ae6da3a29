import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import { PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const ports = [
  { hostPort: 8080, podPort: 80, count: 1, protocol: "tcp" },
  { hostIp: "*", hostPort: 9000, podPort: 90, count: 3, protocol: "udp" },
  { hostIp: "::1", hostPort: 9000, podPort: 90, count: 1, protocol: "tcp" },
];
const web = { id: "abcdefghijkl", name: "web", state: PodState.RUNNING, ports };
const db = { id: "mnopqrstuvwx", name: "db", state: PodState.RUNNING };
const plan = { sections: [{ step: "publish.hold", title: "Sockets", lines: ["hold tcp"] }] };
const asked: unknown[] = [];

const answered = (request: { ports: readonly object[]; planOnly: boolean }) => {
  asked.push(request.ports.map((port) => ({ ...port, $typeName: undefined })));
  return request.planOnly ? { plan } : { pod: web, ports: [{ ...ports[0], hostPort: 30_000 }] };
};
/** Of what is asked, only pod port 70 was never published. */
const unpublished = (request: { ports: { podPort: number }[]; planOnly: boolean }) => ({
  ...(request.planOnly ? { plan } : { pod: web }),
  notPublished: request.ports.filter(({ podPort }) => podPort === 70 || podPort === 8080),
});
const played: Partial<ServiceImpl<typeof PodService>> = {
  list: () => ({ pods: [web, db] }),
  get: ({ idOrName }) => ({ pod: idOrName === "db" ? db : web }),
  publishPorts: answered,
  unpublishPorts: unpublished,
};
const server = await serve((router: ConnectRouter) => addService(router, PodService, played));
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test("ports shows where every published port is reached", async (t) => {
  const table = [
    "POD  HOST                       PORT   PROTOCOL  SPEC",
    "web  127.0.0.1:8080 [::1]:8080  80     tcp       8080:80",
    "web  *:9000-9002                90-92  udp       *:9000-9002:90-92/udp",
    "web  [::1]:9000                 90     tcp       [::1]:9000:90",
    "",
  ].join("\n");
  for (const args of [["ports"], ["ports", "web"]])
    t.is((await podnet(args, here)).out.replaceAll(/ +\n/g, "\n"), table);
  const { out } = await podnet(["ports", "-o", "json"], here);
  const { kind, items } = JSON.parse(out) as {
    kind: string;
    items: { name: string; ports: object[] }[];
  };
  t.is(kind, "PortList");
  t.deepEqual(
    items.map((item) => [item.name, item.ports.length]),
    [
      ["web", 3],
      ["db", 0],
    ],
  );
  t.like(items[0]?.ports[1], {
    hostIp: "*",
    hostPort: 9000,
    podPort: 90,
    count: 3,
    protocol: "udp",
  });
});

test("get shows published ports", async (t) => {
  const { out } = await podnet(["get", "web"], here);
  t.regex(out, /\*:9000-9002 to 90-92\/udp/);
  t.notRegex((await podnet(["get", "db"], here)).out, /Ports/);
});

test.serial(
  "publish asks for ports as they are written, and shows those that were chosen",
  async (t) => {
    const { code, out } = await podnet(["publish", "web", "80", "*:8000-8001:1-2/udp"], here);
    t.is(code, 0);
    t.regex(out, /127\.0\.0\.1:30000 \[::1\]:30000 +80 +tcp/);
    t.notRegex(out, /9000/);
    t.like((asked.at(-1) as object[])[0], { hostIp: "", hostPort: 0, podPort: 80, count: 1 });
    t.like((asked.at(-1) as object[])[1], {
      hostIp: "*",
      hostPort: 8000,
      podPort: 1,
      count: 2,
      protocol: "udp",
    });
    t.like(JSON.parse((await podnet(["publish", "web", "80", "-o", "json"], here)).out), {
      kind: "Pod",
    });
  },
);

test.serial("unpublish shows what is left, and --plan of either what would be done", async (t) => {
  t.regex((await podnet(["unpublish", "web", "8080:81"], here)).out, /9000-9002/);
  // What is published at another address is not what was asked for, and is said to be there.
  const { err } = await podnet(["unpublish", "web", "9000:90"], here);
  t.is(err, "still published: [::1]:9000:90\n");
  for (const command of ["publish", "unpublish"]) {
    t.regex((await podnet([command, "web", "80", "--plan"], here)).out, /Sockets.*\n {2}hold tcp/);
    const { out } = await podnet([command, "web", "80", "--plan", "-o", "json"], here);
    t.like(JSON.parse(out), { kind: "Plan" });
  }
});

test("a lone port is one of the pod: the host port that may be meant is named", async (t) => {
  const { code, err } = await podnet(["unpublish", "alone", "8080", "70"], here);
  t.is(code, 0);
  t.is(
    err,
    "was not published: 8080 (a port of the pod; host port 8080: podnet unpublish web 8080:80)\nwas not published: 70\n",
  );
});

test("unpublish names on standard error what was not published, and succeeds", async (t) => {
  for (const more of [[], ["--plan"], ["-o", "json"]]) {
    const args = ["unpublish", "web", "8088:80", "70", "*:7001:70/udp", ...more];
    const { code, err } = await podnet(args, here);
    t.is(code, 0);
    t.is(err, "was not published: 70\nwas not published: *:7001:70/udp\n");
  }
  t.is((await podnet(["unpublish", "web", "8088:80"], here)).err, "");
});

test("what is no port is refused without asking podnetd", async (t) => {
  for (const args of [
    ["publish", "web", "http"],
    ["unpublish", "web", "1:2:3"],
    ["create", "-p", "0"],
  ]) {
    const { code, err } = await podnet(args, here);
    t.is(code, 2);
    t.regex(err, /INVALID_ARGUMENT/);
  }
});
