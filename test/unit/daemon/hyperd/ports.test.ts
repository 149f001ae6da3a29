import test from "ava";
import { freePort } from "../../api/fixtures/free-port.ts";
import { podOne, startHyperd } from "./rig.ts";

const mapping = (hostPort: number | string, containerPort: number | string, protocol = "tcp") => ({
  containerPort: String(containerPort),
  hostPort: String(hostPort),
  protocol,
});

test("port mappings are listed, added and deleted, and are what the pod publishes", async (t) => {
  await using rig = await startHyperd();
  const [one, two] = [await freePort(), await freePort()];
  await rig.send("POST", "/pod/create", podOne({ portmappings: [mapping(one, 80)] }));
  const list = async () => (await rig.call("GET", "/pod/pod-one/portmappings")).body;
  const of = (port: number, inside: number, protocol: string) =>
    `{"containerPort":"${inside}","hostPort":"${port}","protocol":"${protocol}"}`;
  t.is(await list(), `{"portMappings":[${of(one, 80, "tcp")}]}\n`);
  const added = await rig.send("PUT", "/pod/pod-one/portmappings/add", [mapping(two, 53, "udp")]);
  t.is(added.status, 204);
  t.is(await list(), `{"portMappings":[${of(one, 80, "tcp")},${of(two, 53, "udp")}]}\n`);
  // At every address of the host, as hyperd's rules are.
  t.deepEqual(
    rig.node.pods.find("pod-one").spec.ports?.map(({ hostIp, hostPort }) => [hostIp, hostPort]),
    [
      ["*" as never, one],
      ["*" as never, two],
    ],
  );
  // hyperd compared a host port with the other's container port, and deleted nothing.
  const gone = await rig.send("PUT", "/pod/pod-one/portmappings/delete", [mapping(one, 80)]);
  t.is(gone.status, 204);
  t.is(await list(), `{"portMappings":[${of(two, 53, "udp")}]}\n`);
  await rig.call("DELETE", "/pod?podId=pod-one");
});

test("a host port that is taken is refused in hyperd's words, with all that was asked", async (t) => {
  await using rig = await startHyperd();
  const [one, two] = [await freePort(), await freePort()];
  await rig.send("POST", "/pod/create", podOne({ portmappings: [mapping(one, 80)] }));
  await rig.send("POST", "/pod/create", podOne({ id: "pod-two" }));
  const refused = await rig.send("PUT", "/pod/pod-two/portmappings/add", [
    mapping(two, 80),
    mapping(one, 80),
  ]);
  t.is(refused.status, 500);
  t.true(
    refused.body.startsWith(`Host port &{${one} ${one}} has aleady been used\n`),
    refused.body,
  );
  t.is((await rig.call("GET", "/pod/pod-two/portmappings")).body, '{"portMappings":[]}\n');
  const created = await rig.send(
    "POST",
    "/pod/create",
    podOne({ id: "pod-three", portmappings: [mapping(one, 80)] }),
  );
  t.is(created.status, 500);
  t.true(
    created.body.startsWith(`Host port &{${one} ${one}} has aleady been used\n`),
    created.body,
  );
  for (const id of ["pod-one", "pod-two"]) await rig.call("DELETE", `/pod?podId=${id}`);
});

test("a deletion names mappings that are there, or deletes none", async (t) => {
  await using rig = await startHyperd();
  const port = await freePort();
  await rig.send("POST", "/pod/create", podOne({ portmappings: [mapping(port, 80)] }));
  const { status, body } = await rig.send("PUT", "/pod/pod-one/portmappings/delete", [
    mapping(port, 80),
    mapping(port, 81),
  ]);
  t.is(status, 500);
  t.regex(body, /^Pod pod-one has no port mapping \d+:81\n/);
  t.is(rig.node.pods.find("pod-one").plan.published?.length, 1);
  await rig.call("DELETE", "/pod?podId=pod-one");
});

test("a range leads to a range, and a port that is not given is chosen", async (t) => {
  await using rig = await startHyperd();
  const { body } = await rig.send(
    "POST",
    "/pod/create",
    podOne({ portmappings: [mapping("", "8000-8002"), mapping("0", 90, "UDP")] }),
  );
  t.regex(body, /pod-one/);
  const { portMappings } = JSON.parse(
    (await rig.call("GET", "/pod/pod-one/portmappings")).body,
  ) as { readonly portMappings: readonly Record<string, string>[] };
  t.regex(portMappings[0]?.["hostPort"] ?? "", /^\d+-\d+$/);
  t.like(portMappings[0], { containerPort: "8000-8002", protocol: "tcp" });
  t.like(portMappings[1], { containerPort: "90", protocol: "udp" });
  await rig.call("DELETE", "/pod?podId=pod-one");
});
