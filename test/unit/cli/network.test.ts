import { create } from "@bufbuild/protobuf";
import test from "ava";
import {
  type CreateNetworkRequest,
  type Network,
  type NetworkSpec,
  NetworkSchema,
  NetworkService,
  type UpdateNetworkRequest,
} from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { PodnetError } from "../../../core/errors.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const blue = create(NetworkSchema, {
  name: "blue",
  bridge: "pn-blue",
  mtu: 1400,
  subnets: [
    { cidr: "10.20.0.0/24", gateway: "10.20.0.254", ranges: ["10.20.0.5-10.20.0.9"] },
    {
      cidr: "fd00:20::/64",
      gateway: "fd00:20::1",
      reservations: ["fd00:20::7"],
      free: "18446744073709551614",
    },
  ],
  dns: ["192.0.2.53"],
  masquerade: true,
  isolated: true,
});

const others: Network[] = [];
const creates: CreateNetworkRequest[] = [];
const updates: UpdateNetworkRequest[] = [];
const server = await serve((router) =>
  addService(router, NetworkService, {
    list: () => ({ networks: [blue, ...others] }),
    get({ name }) {
      if (name === "blue") return { network: blue };
      throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${name}"`);
    },
    create(request) {
      creates.push(request);
      const [subnet] = request.spec?.subnets ?? [];
      // Of a host that has routes to these.
      const isFull = request.spec?.name === "full";
      if (isFull || (request.spec?.name === "green" && subnet?.cidr.startsWith("10.210.")))
        throw new PodnetError("NETWORK_OVERLAP", `${subnet?.cidr} overlaps with a route`);
      return request.planOnly ? { plan: ["link pn-blue bridge", "address"] } : { network: blue };
    },
    update(request) {
      updates.push(request);
      return { network: blue };
    },
    delete({ name, planOnly }) {
      if (planOnly) return { existed: true, plan: ["link pn-blue bridge"] };
      if (name === "busy")
        throw new PodnetError("NETWORK_IN_USE", 'Network "busy" is used by pod web', {
          hint: "Delete those pods",
        });
      return { existed: name === "blue" };
    },
  }),
);
test.after.always(() => server.kill());
const here = { socket: server.h2 };

const plain = (spec: NetworkSpec | undefined) => ({
  ...spec,
  subnets: spec?.subnets.map(({ cidr, ranges, reserved }) => [cidr, ranges, reserved]),
});

test.serial("create: what flags say, each range with the subnet of its family", async (t) => {
  const line =
    "network create blue --bridge br9 --cidr 10.20.0.0/24 --cidr fd00:20::/64 --range 10.20.0.5-10.20.0.9 " +
    "--range fd00:20::/120 --reserve fd00:20::7 --mtu 1400 --dns 192.0.2.53 --dns-search example.org --no-nat " +
    "--isolated --vlan-filtering --cloud-metadata --accept-translated --admit 10.21.0.0/16 --admit fd00:21::/32 " +
    "--host-access tcp/22 --host-access udp/5000-5010 --connections 512 --force";
  const { out, code } = await podnet(line.split(" "), here);
  t.is(code, 0);
  t.is(out, "Created network blue: 10.20.0.0/24 and fd00:20::/64 on pn-blue\n");
  const request = creates.at(-1);
  t.true(request?.force);
  t.like(plain(request?.spec), {
    name: "blue",
    bridge: "br9",
    subnets: [
      ["10.20.0.0/24", ["10.20.0.5-10.20.0.9"], []],
      ["fd00:20::/64", ["fd00:20::/120"], ["fd00:20::7"]],
    ],
    mtu: 1400,
    dns: ["192.0.2.53"],
    dnsSearch: ["example.org"],
    masquerade: false,
    isolated: true,
    vlanFiltering: true,
    cloudMetadata: true,
    acceptTranslated: true,
    admit: ["10.21.0.0/16", "fd00:21::/32"],
    hostAccess: ["tcp/22", "udp/5000-5010"],
    connections: 512,
  });
});

test.serial(
  "create without anything else: NAT, not isolated, the daemon's bridge and MTU",
  async (t) => {
    await podnet(["network", "create", "blue", "--cidr", "10.20.0.0/24"], here);
    const request = creates.at(-1);
    t.false(request?.force);
    t.like(plain(request?.spec), { bridge: "", mtu: undefined, masquerade: true, isolated: false });
  },
);

test.serial("--plan prints lines and makes nothing; -o json prints a document", async (t) => {
  const line = ["network", "create", "blue", "--cidr", "10.20.0.0/24", "--plan"];
  t.is((await podnet(line, here)).out, "link pn-blue bridge\naddress\n");
  const json = JSON.parse((await podnet([...line, "-o", "json"], here)).out);
  t.like(json, { kind: "NetworkPlan", plan: ["link pn-blue bridge", "address"] });
  t.is((await podnet(["network", "delete", "blue", "--plan"], here)).out, "link pn-blue bridge\n");
});

test.serial(
  "a network is as the node is configured where no resolver is asked for or refused",
  async (t) => {
    for (const [flags, resolver] of [
      ["", undefined],
      [" --resolver", true],
      [" --no-resolver", false],
    ] as const) {
      await podnet(`network create blue --cidr 10.20.0.0/24${flags}`.split(" "), here);
      t.is(creates.at(-1)?.spec?.resolver, resolver, flags);
    }
  },
);

test.serial("update: what is not named stays as it is", async (t) => {
  t.is((await podnet(["network", "update", "blue", "--dns", "none"], here)).code, 0);
  const same = [
    ["10.20.0.254/24", ["10.20.0.5-10.20.0.9"], []],
    ["fd00:20::1/64", [], ["fd00:20::7"]],
  ];
  t.like(plain(updates.at(-1)?.spec), {
    name: "blue",
    subnets: same,
    mtu: 1400,
    dns: [],
    masquerade: true,
    isolated: true,
  });
  const line = "network update blue --no-nat --no-isolated --range none --mtu 1500";
  await podnet(line.split(" "), here);
  t.like(plain(updates.at(-1)?.spec), {
    subnets: [
      ["10.20.0.254/24", [], []],
      ["fd00:20::1/64", [], ["fd00:20::7"]],
    ],
    mtu: 1500,
    dns: ["192.0.2.53"],
    masquerade: false,
    isolated: false,
  });
  await podnet("network update blue --resolver".split(" "), here);
  t.true(updates.at(-1)?.spec?.resolver);
  await podnet("network update blue --cidr 10.30.0.0/24 --nat".split(" "), here);
  t.false(updates.at(-1)?.spec?.resolver, "as it was");
  t.like(plain(updates.at(-1)?.spec), { subnets: [["10.30.0.0/24", [], []]], masquerade: true });
});

test.serial("delete: gone, gone already, in use", async (t) => {
  t.is((await podnet(["network", "delete", "blue"], here)).out, "Deleted network blue\n");
  t.is((await podnet(["network", "rm", "red"], here)).out, "red is gone already\n");
  const { code, err } = await podnet(["network", "delete", "busy"], here);
  t.is(code, 5);
  t.regex(err, /used by pod web.*NETWORK_IN_USE/s);
});

test.serial("list and get show what a network is, by the old name too", async (t) => {
  const { out } = await podnet(["network"], here);
  t.regex(out, /^blue +pn-blue +10\.20\.0\.0\/24 +10\.20\.0\.254 +1400 +yes +yes/m);
  for (const line of [["networks"], ["networks", "blue"], ["network", "list"]])
    t.is((await podnet(line, here)).out, out);
  // Readable on a terminal, whatever the size of a pool.
  t.true(
    out.split("\n").every((line) => line.length <= 100),
    out,
  );
  t.regex(out, /fd00:20::\/64 .* 1\.8e\+19$/m);
  t.is(JSON.parse((await podnet(["networks", "-o", "json"], here)).out).kind, "NetworkList");
  const one = await podnet(["network", "get", "blue"], here);
  t.regex(one.out, /^Isolated +yes$/m);
  t.regex(one.out, /^Subnet +fd00:20::\/64, gateway fd00:20::1$/m);
  t.is((await podnet(["network", "get", "red"], here)).code, 4);
});

test("an update of nothing is refused", async (t) => {
  const { code, err } = await podnet(["network", "update", "blue", "-o", "json"], here);
  t.is(code, 2);
  t.regex(err, /Nothing is to be changed/);
});

test.serial(
  "create without a subnet takes one that is free, of networks and of the host",
  async (t) => {
    creates.length = 0;
    others.push(create(NetworkSchema, { name: "red", subnets: [{ cidr: "172.29.0.0/24" }] }));
    const { code, err } = await podnet(["network", "create", "green", "--isolated"], here);
    t.is(code, 0, err);
    const asked = creates.map(({ spec }) => plain(spec));
    t.is(asked.length, 17, "each of the first block was refused");
    t.like(asked.at(-1), { name: "green", isolated: true, subnets: [["172.29.1.0/24", [], []]] });
  },
);

test.serial(
  "create without a subnet gives up when none is free, or for another reason",
  async (t) => {
    creates.length = 0;
    const { code, err } = await podnet(["network", "create", "full"], here);
    t.is(code, 5);
    t.is(creates.length, 47);
    t.regex(err, /NETWORK_OVERLAP[^]+hint: Give one: --cidr/);
    for (const flag of ["--range", "--reserve"]) {
      const wrong = await podnet(["network", "create", "x", flag, "10.0.0.5"], here);
      t.is(wrong.code, 2);
      t.regex(wrong.err, new RegExp(`${flag} needs --cidr`));
    }
    t.is(creates.length, 47, "nothing was asked for");
  },
);
