import assert from "node:assert/strict";
import { create as createMessage } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { ServiceSpecSchema } from "../../api/gen/podnet/v1/service_service_pb.ts";
import { type ErrorCode, isPodnetError } from "../../core/errors.ts";
import { parseBackend, parseBackendCheck, parseServicePort } from "../../api/service-text.ts";
import { until } from "../lab/until.ts";
import type { Rig } from "./daemon-rig.ts";
import { create, joinStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});
const nft = (...words: string[]): Promise<string> => rig.lab.host.run("nft", ...words);

/**
 * What a test here leaves goes. Not a hook: that would run after the tests of other files on this
 * podnetd too, one of which takes it down.
 */
async function clear(): Promise<void> {
  for (const { name } of (await rig.client.services.list({})).services)
    await rig.client.services.delete({ name });
  for (const { name } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: name });
  assert.doesNotMatch(await nft("list", "tables"), /podnet_services/, "services left something");
}

interface Asked {
  readonly ports?: readonly string[];
  readonly backends?: readonly string[];
  readonly select?: Readonly<Record<string, string>>;
  readonly addresses?: readonly string[];
  readonly network?: string;
  readonly affinity?: string;
  readonly check?: string;
}

const specOf = (name: string, { ports = ["80"], backends = [], ...rest }: Asked) =>
  createMessage(ServiceSpecSchema, {
    name,
    ports: ports.map((text) => parseServicePort(text)),
    backends: backends.map((text) => parseBackend(text)),
    select: { ...rest.select },
    addresses: [...(rest.addresses ?? [])],
    network: rest.network ?? "",
    affinity: rest.affinity ?? "",
    ...(rest.check !== undefined && { check: parseBackendCheck(rest.check) }),
  });

async function make(name: string, asked: Asked = {}) {
  const { service } = await rig.client.services.create({ spec: specOf(name, asked) });
  if (service === undefined) throw new Error("Nothing was made");
  return service;
}

async function refused(
  t: ExecutionContext,
  code: ErrorCode,
  field: string,
  asked: Asked,
  name = "bad",
): Promise<void> {
  const thrown: unknown = await make(name, asked).catch((error: unknown) => error);
  if (!isPodnetError(thrown)) return t.fail(`Not refused: ${JSON.stringify(asked)}`);
  t.is(thrown.code, code, thrown.message);
  t.is(thrown.field, field, thrown.message);
  t.truthy(thrown.hint);
}

/** The addresses of the slots in the kernel. */
async function slots(protocol = "tcp"): Promise<string[]> {
  const shown = await nft("list", "map", "inet", "podnet_services", `${protocol}4`);
  return [...shown.matchAll(/ : ([0-9.]+ \. [0-9]+)/g)].map(([, slot = ""]) => slot).toSorted();
}

const addressOf = async (name: string): Promise<string> => {
  const { pod } = await rig.client.pods.get({ idOrName: name });
  return pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";
};

const label = (idOrName: string, set: Record<string, string>, remove: string[] = []) =>
  rig.client.pods.label({ idOrName, set, remove });

test.serial(
  "backends that do not answer are shown, and get connections where none does",
  async (t) => {
    t.teardown(clear);
    await create(rig.client, "one");
    const one = await addressOf("one");
    const check = "/healthz,port=9000,interval=1,timeout=1,fall=1";
    const made = await make("web", { backends: ["one"], check });
    t.is(made.check?.rise, 2, "what is in force is shown whole");
    // (A machine that stands in has no kernel that would answer.)
    await until("a bad answer", async () => {
      const { service } = await rig.client.services.get({ name: "web" });
      return service?.endpoints[0]?.health === "unhealthy";
    });
    const { service } = await rig.client.services.get({ name: "web" });
    t.regex(
      service?.endpoints[0]?.healthReason ?? "",
      /^(?:connection failed|no answer within 1 s)/,
    );
    t.regex(service?.notices.join() ?? "", /^All backends of "web" fail its check/);
    t.deepEqual(await slots(), [`${one} . 80`]);
    await refused(t, "INVALID_ARGUMENT", "check.port", { ports: ["53/udp"], check: "tcp" });
    await refused(t, "INVALID_ARGUMENT", "check.path", { check: "/a b" });
    await refused(t, "INVALID_ARGUMENT", "check.path", { check: "/\r\nX: y" });
    await refused(t, "INVALID_ARGUMENT", "check.timeout_s", { check: "tcp,timeout=61" });
    await refused(t, "INVALID_ARGUMENT", "check.fall", { check: "tcp,fall=11" });
  },
);

test.serial("a service follows the pods that its labels and names choose", async (t) => {
  t.teardown(clear);
  await create(rig.client, "one");
  await create(rig.client, "two");
  const [one, two] = [await addressOf("one"), await addressOf("two")];
  await label("one", { app: "web" });
  const made = await make("web", { ports: ["80:8080"], select: { app: "web" } });
  t.regex(made.addresses.join(), /^10\.73\.\d+\.\d+$/);
  t.deepEqual(
    made.endpoints.map(({ pod, address }) => `${pod} ${address}`),
    [`one ${one}`],
  );
  t.deepEqual(await slots(), [`${one} . 8080`]);
  await label("two", { app: "web" });
  await until("a pod that gets the label", async () => (await slots()).length === 2);
  t.deepEqual(await slots(), [`${one} . 8080`, `${two} . 8080`].toSorted());
  await rig.client.pods.pause({ idOrName: "one" });
  await until("a pod that is paused", async () => (await slots()).join() === `${two} . 8080`);
  await rig.client.pods.resume({ idOrName: "one" });
  await until("a pod that goes on", async () => (await slots()).length === 2);
  await rig.client.pods.delete({ idOrName: "two" });
  await until("a pod that is deleted", async () => (await slots()).join() === `${one} . 8080`);
  await label("one", {}, ["app"]);
  await until("a label that goes", async () => (await slots()).length === 0);
  const { service } = await rig.client.services.get({ name: "web" });
  t.regex(service?.notices.join() ?? "", /No backend of "web" runs on network "default"/);
});

test.serial("an update keeps the address, and a service made again has it", async (t) => {
  t.teardown(clear);
  const { addresses } = await make("db", { ports: ["5432"], backends: ["203.0.113.10=2", "one"] });
  t.deepEqual(await slots(), ["203.0.113.10 . 5432"], "the pod does not exist");
  await create(rig.client, "one");
  await until("the pod comes", async () => (await slots()).length === 3);
  const spec = specOf("db", { ports: ["5432:1", "5432/udp"], backends: ["one=0"] });
  const { service } = await rig.client.services.update({ spec });
  t.deepEqual(service?.addresses, addresses);
  t.regex(service?.notices.join() ?? "", /All backends of "db" have weight 0/);
  await rig.client.services.delete({ name: "db" });
  t.deepEqual((await make("db")).addresses, addresses);
  t.false((await rig.client.services.delete({ name: "none" })).existed);
});

test.serial("single backends come and go by their names, and a client's stay", async (t) => {
  t.teardown(clear);
  await make("db", { backends: ["203.0.113.10"], affinity: "client" });
  t.is(new Set(await slots()).size, 1);
  const change = (more: { set?: string[]; remove?: string[] }) =>
    rig.client.services.changeBackends({
      name: "db",
      set: (more.set ?? []).map((text) => parseBackend(text)),
      remove: [...(more.remove ?? [])],
    });
  t.is((await change({ set: ["203.0.113.11", "one"] })).endpoints, 2, "the pod does not exist");
  t.is(new Set(await slots()).size, 2);
  const { notices } = await change({ remove: ["203.0.113.10", "203.0.113.11"] });
  t.regex(notices.join(), /No backend of "db" runs/);
  const { service } = await rig.client.services.get({ name: "db" });
  t.deepEqual(
    service?.backends.map(({ pod }) => pod),
    ["one"],
  );
  t.is(service?.affinity, "client");
  for (const [field, bad] of [
    ["set", {}],
    ["remove", { remove: ["two"] }],
    ["remove[0]", { remove: ["A"] }],
    ["set[1]", { set: ["a", "a=2"] }],
    ["set[0].address", { set: ["127.0.0.1"] }],
  ] as const) {
    const asked = { ...bad } as { set?: string[]; remove?: string[] };
    const thrown: unknown = await change(asked).catch((error: unknown) => error);
    if (!isPodnetError(thrown, "INVALID_ARGUMENT")) throw new Error("Another", { cause: thrown });
    t.is(thrown.field, field, thrown.message);
  }
  await refused(t, "INVALID_ARGUMENT", "affinity", { affinity: "cookie" });
});

test.serial("a restart keeps services, and drift of their rules is repaired", async (t) => {
  t.teardown(clear);
  await create(rig.client, "one");
  const one = await addressOf("one");
  await make("web", { backends: ["one"] });
  const before = await nft("list", "table", "inet", "podnet_services");
  await rig.restart("kill");
  t.is(await nft("list", "table", "inet", "podnet_services"), before);
  await nft("delete", "table", "inet", "podnet_services");
  const { parts } = await rig.client.node.diff({});
  t.true(parts.some(({ part, found }) => part === "services" && found.length > 0));
  await rig.restart("kill");
  await until("the rules", async () => (await nft("list", "tables")).includes("podnet_services"));
  t.deepEqual(await slots(), [`${one} . 80`], "made again by the start");
  await nft("flush", "map", "inet", "podnet_services", "tcp4");
  await until("the look for drift", async () => (await slots()).length === 1, 90_000);
});

test.serial("bad services are refused with what was wrong, and leave nothing", async (t) => {
  t.teardown(clear);
  await make("first", { addresses: ["10.73.0.9"] });
  for (const [code, field, asked] of [
    ["INVALID_ARGUMENT", "ports", { ports: [] }],
    ["INVALID_ARGUMENT", "ports[1]", { ports: ["80", "80:81"] }],
    ["INVALID_ARGUMENT", "ports[0].port", { ports: ["0"] }],
    ["INVALID_ARGUMENT", "ports[0].port", { ports: ["70000"] }],
    ["INVALID_ARGUMENT", "ports[0].protocol", { ports: ["80/icmp"] }],
    ["INVALID_ARGUMENT", "backends[1]", { backends: ["a", "a=2"] }],
    ["INVALID_ARGUMENT", "backends[0].weight", { backends: ["a=101"] }],
    ["INVALID_ARGUMENT", "backends[0].port", { ports: ["1", "2"], backends: ["a:3"] }],
    ["INVALID_ARGUMENT", "backends[0].pod", { backends: ["A"] }],
    ["INVALID_ARGUMENT", "backends[0].address", { backends: ["127.0.0.1"] }],
    ["INVALID_ARGUMENT", "backends[0].address", { backends: ["169.254.169.254"] }],
    ["INVALID_ARGUMENT", "backends[0].address", { backends: ["10.73.0.9"] }],
    ["INVALID_ARGUMENT", "backends[0].address", { backends: ["192.168.123.77"] }],
    ["INVALID_ARGUMENT", "backends[0].address", { backends: ["2001:db8::1"] }],
    ["INVALID_ARGUMENT", "addresses[0]", { addresses: ["fd00::1"] }],
    ["INVALID_ARGUMENT", "addresses[1]", { addresses: ["10.73.0.1", "10.73.0.2"] }],
    ["ADDRESS_OUT_OF_RANGE", "addresses[0]", { addresses: ["10.74.0.1"] }],
    ["ADDRESS_RESERVED", "addresses[0]", { addresses: ["10.73.0.0"] }],
    ["ADDRESS_RESERVED", "addresses[0]", { addresses: ["10.73.255.255"] }],
    ["ADDRESS_IN_USE", "addresses[0]", { addresses: ["10.73.0.9"] }],
    ["ADDRESS_INVALID", "addresses[0]", { addresses: ["web"] }],
    ["NETWORK_NOT_FOUND", "network", { network: "none" }],
  ] as const satisfies readonly (readonly [ErrorCode, string, Asked])[])
    await refused(t, code, field, asked);
  await refused(t, "NAME_IN_USE", "name", {}, "first");
  await refused(t, "INVALID_ARGUMENT", "name", {}, "Bad");
  t.deepEqual(
    (await rig.client.services.list({})).services.map(({ name }) => name),
    ["first"],
  );
  await t.throwsAsync(rig.client.services.get({ name: "bad" }), { code: "SERVICE_NOT_FOUND" });
  await t.throwsAsync(rig.client.services.update({ spec: specOf("bad", {}) }), {
    code: "SERVICE_NOT_FOUND",
  });
});

test.serial("a service has as many backends as it may have, and no more", async (t) => {
  t.teardown(clear);
  const backends = (count: number): string[] =>
    Array.from({ length: count }, (_, i) => `100.64.${i >> 7}.${(i & 127) + 1}:${i + 1}=1`);
  const { endpoints } = await make("many", { backends: backends(1024) });
  t.is(endpoints.length, 1024);
  t.is((await slots()).length, 1024);
  await refused(t, "INVALID_ARGUMENT", "backends", { backends: backends(1025) });
});

test.serial("no network takes the addresses of services, nor goes from under one", async (t) => {
  t.teardown(clear);
  const spec = { name: "green", subnets: [{ cidr: "10.88.0.0/24" }] };
  await rig.client.networks.create({ spec });
  await make("web", { network: "green" });
  await t.throwsAsync(rig.client.networks.delete({ name: "green" }), {
    code: "NETWORK_IN_USE",
    message: /service web/,
  });
  await rig.client.services.delete({ name: "web" });
  await rig.client.networks.delete({ name: "green" });
  await t.throwsAsync(
    rig.client.networks.create({ spec: { name: "bad", subnets: [{ cidr: "10.73.8.0/24" }] } }),
    { code: "NETWORK_OVERLAP" },
  );
});
