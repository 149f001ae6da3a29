import test from "ava";
import { CniService } from "../../../api/gen/podnet/v1/cni_service_pb.ts";
import {
  PodService,
  type TracePodLiveRequest,
  type TracePodRequest,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const asked: TracePodRequest[] = [];
const askedLive: TracePodLiveRequest[] = [];
const server = await serve((router) => {
  addService(router, CniService, {
    trace: () => ({ destination: "192.0.2.7", verdict: "allow" }),
    async *traceLive() {},
  });
  addService(router, PodService, {
    async *traceLive(request) {
      askedLive.push(request);
      const { destination } = request;
      yield { event: { case: "started", value: { destination, link: "tap0" } } };
      if (destination === "192.0.2.9") return;
      const rules = [
        { table: "bridge podnet", chain: "port", rule: "goto own", verdict: "goto own" },
        {
          table: "inet podnet_policy",
          chain: "policy_0a",
          rule: "reject \u001b[31m",
          verdict: "drop",
          standsFor: "builds/default",
        },
      ];
      const packet = "tcp 192.168.123.2:40112 to 192.0.2.7:443";
      yield { event: { case: "packet", value: { packet, rules, verdict: "drop" } } };
    },
    trace(request) {
      asked.push(request);
      const [rule, text] = ["builds/default", "egress: \u001b[31mno rule allows it"];
      return {
        destination: "192.0.2.7",
        steps: [
          { step: "route", verdict: "pass", text: "from 192.168.123.2 by eth0" },
          { step: "policy", verdict: "deny", rule, text },
        ],
        verdict: "deny",
      };
    },
  });
});
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test.serial(
  "trace shows the steps as a table and as JSON, with nothing that a terminal obeys",
  async (t) => {
    const { code, out } = await podnet(["trace", "web", "192.0.2.7:443"], here);
    t.is(code, 0);
    const lines = out.trimEnd().split("\n");
    t.regex(lines[0] ?? "", /^STEP +VERDICT +RULE +WHAT$/);
    t.regex(lines[1] ?? "", /^route +pass +- +from 192/);
    t.regex(lines[2] ?? "", /^policy +deny +builds\/default +egress: .*no rule allows it$/);
    t.is(lines[3], "deny to 192.0.2.7");
    t.notRegex(out, /\u001b/);
    const json = JSON.parse((await podnet(["trace", "web", "db", "-o", "json"], here)).out) as {
      kind: string;
      verdict: string;
    };
    t.like(json, { kind: "Trace", verdict: "deny" });
  },
);

test.serial("a destination is an address or a name, with a port or without", async (t) => {
  for (const [text, destination, port] of [
    ["192.0.2.7", "192.0.2.7", undefined],
    ["192.0.2.7:443", "192.0.2.7", 443],
    ["db:5432", "db", 5432],
    ["2001:db8::7", "2001:db8::7", undefined],
    ["[2001:db8::7]", "2001:db8::7", undefined],
    ["[2001:db8::7]:53", "2001:db8::7", 53],
  ] as const) {
    t.is((await podnet(["trace", "web", text, "--protocol", "udp"], here)).code, 0, text);
    t.like(asked.at(-1), { idOrName: "web", destination, port, protocol: "udp" }, text);
  }
  for (const text of ["", ":80", "db:", "db:x", "[::1"])
    t.is((await podnet(["trace", "web", text], here)).code, 2, text);
});

test.serial(
  "a live trace shows each packet with its rules, and fails when none came",
  async (t) => {
    const live = ["trace", "web", "192.0.2.7:443", "--live", "--packets", "2", "--timeout", "1m"];
    const { code, out, err } = await podnet(live, here);
    t.is(code, 0);
    t.like(askedLive.at(-1), { port: 443, bounds: { packets: 2, timeoutMs: 60_000 } });
    t.regex(err, /^Waiting for packets to 192\.0\.2\.7 by tap0; ctrl-c ends$/m);
    const lines = out.trimEnd().split("\n");
    t.is(lines[0], "tcp 192.168.123.2:40112 to 192.0.2.7:443");
    t.regex(lines[1] ?? "", /^TABLE +CHAIN +VERDICT +STANDS FOR +RULE$/);
    t.regex(lines[2] ?? "", /^bridge podnet +port +goto own +- +goto own$/);
    t.regex(lines[3] ?? "", /^inet podnet_policy +policy_0a +drop +builds\/default +reject/);
    t.is(lines[4], "drop");
    t.notRegex(out, /\u001b/);
    const json = await podnet(["trace", "web", "192.0.2.7:443", "--live", "-o", "json"], here);
    t.like(JSON.parse(json.out), { kind: "TracedPacket", verdict: "drop" });
    const none = await podnet(["trace", "web", "192.0.2.9", "--live"], here);
    t.is(none.code, 1);
    t.regex(none.err, /^No packet came/m);
    t.is((await podnet(["trace", "web", "192.0.2.9", "--packets", "2"], here)).code, 2);
  },
);

test.serial("containers are traced alike", async (t) => {
  const { code, out } = await podnet(["cni", "trace", "4a5b", "192.0.2.7:443"], here);
  t.is(code, 0);
  t.regex(out, /^allow to 192\.0\.2\.7$/m);
  const live = await podnet(["cni", "trace", "4a5b", "192.0.2.7:443", "--live"], here);
  t.deepEqual([live.code, live.out], [1, ""]);
});
