import test from "ava";
import { PodService, type TracePodRequest } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const asked: TracePodRequest[] = [];
const server = await serve((router) =>
  addService(router, PodService, {
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
  }),
);
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
