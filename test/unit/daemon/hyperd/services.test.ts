import test from "ava";
import { until } from "../../../lab/until.ts";
import { type HyperRig, podOne, startHyperd } from "./rig.ts";

const web = (more: object = {}) => ({
  serviceIP: "10.73.0.80",
  servicePort: 80,
  protocol: "tcp",
  hosts: [{ hostIP: "192.0.2.7", hostPort: 8080 }],
  ...more,
});

const asked = (services: unknown): string => encodeURIComponent(JSON.stringify(services));
const change = (rig: HyperRig, method: string, path: string, services: unknown) =>
  rig.call(method, `${path}?podId=pod-one&services=${asked(services)}`);
const listed = async (rig: HyperRig): Promise<unknown> =>
  JSON.parse((await rig.call("GET", "/service/list?podId=pod-one")).body);

test("services of a pod are podnet's: listed, added, updated, deleted, and gone with it", async (t) => {
  await using rig = await startHyperd();
  const created = await rig.send("POST", "/pod/create", podOne({ services: [web()] }));
  t.is(created.status, 201, created.body);
  t.deepEqual(await listed(rig), [web()]);
  // A host that is a pod of the network is one by name: its address may change.
  const own = web({ serviceIP: "10.73.0.81", hosts: [{ hostIP: "10.0.0.2", hostPort: 80 }] });
  t.is(
    (await change(rig, "POST", "/service/add", [own])).body,
    '{"Cause":"","Code":0,"ID":"pod-one"}\n',
  );
  t.deepEqual(await listed(rig), [web(), own]);
  t.deepEqual(
    rig.services
      .list()
      .flatMap(({ backends }) => backends.map((each) => each.pod ?? each.address))
      .toSorted(),
    ["192.0.2.7", "pod-one"],
  );
  // Two ports of one address are one service.
  const both = [
    web(),
    web({ servicePort: 53, protocol: "udp", hosts: [{ hostIP: "192.0.2.7", hostPort: 5353 }] }),
  ];
  t.is((await change(rig, "POST", "/service/update", both)).status, 200);
  t.deepEqual(await listed(rig), both);
  t.is(rig.services.list().length, 1);
  t.is((await change(rig, "DELETE", "/service", [web()])).status, 200);
  t.deepEqual(await listed(rig), [both[1]]);
  await rig.call("DELETE", "/pod?podId=pod-one");
  await until("the services to go", () => rig.services.list().length === 0);
  t.deepEqual(rig.rules.at(-1), []);
});

test("what of services cannot be is refused, and leaves them as they were", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne({ services: [web()] }));
  for (const [services, words] of [
    [[web()], /is there already/],
    [
      [web({ serviceIP: "10.73.0.81" }), web({ serviceIP: "192.0.2.1" })],
      /not an address of services/,
    ],
    [[web({ serviceIP: "10.73.0.81", servicePort: 0 })], /0 is not a port/],
    [[web({ serviceIP: "10.73.0.81", protocol: "icmp" })], /cannot have protocol "icmp"/],
    [[web({ serviceIP: "x" })], /"x"/],
    [[web({ servicePort: 81, hosts: [] })], /lead to different hosts/],
    [
      [web({ serviceIP: "10.73.0.81", hosts: [{ hostIP: "10.0.0.5", hostPort: 1 }] })],
      /is in network/,
    ],
    [[web({ weight: 3 })], /there is no field weight/],
    [{}, /cannot be read/],
  ] as const) {
    const { status, body } = await change(rig, "POST", "/service/add", services);
    t.is(status, 500, body);
    t.regex(body, words);
  }
  const gone = await change(rig, "DELETE", "/service", [web(), web({ servicePort: 9 })]);
  t.regex(gone.body, /^Pod pod-one has no service 10\.73\.0\.80:9\/tcp/);
  t.deepEqual(await listed(rig), [web()]);
  // A pod whose services cannot be is not left behind.
  const other = podOne({ id: "pod-two", services: [web()] });
  const refused = await rig.send("POST", "/pod/create", other);
  t.is(refused.status, 500);
  t.regex(refused.body, /10\.73\.0\.80 is the address of service/);
  t.is(rig.node.pods.list().length, 1);
});

test("services of a pod that was deleted by other means go, also while podnetd was down", async (t) => {
  const first = await startHyperd();
  await first.send("POST", "/pod/create", podOne({ services: [web()] }));
  await first[Symbol.asyncDispose]();
  await using rig = await startHyperd(first.config);
  t.is(rig.services.list().length, 1, "the pod is there");
  await rig.node.pods.delete("pod-one", { force: true });
  await until("the services to go", () => rig.services.list().length === 0);
});
