import { writeFileSync } from "node:fs";
import path from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import test from "ava";
import type { Command } from "commander";
import { ImageService } from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { contextOf } from "../../../cli/context.ts";
import { otherNames } from "../../../cli/flags/typed.ts";
import { processIo } from "../../../cli/io.ts";
import { buildProgram } from "../../../cli/program.ts";
import { PodnetError } from "../../../core/errors.ts";
import { GivenFlags } from "../../../cli/flags/given.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const here = { socket: server.h2 };
test.after.always(() => server.kill());

const file = (name: string, text: string): string => {
  const made = path.join(server.folder, name);
  writeFileSync(made, text);
  return made;
};

const two = file("two.yaml", "interfaces: [{address: 10.0.0.1}, {mtu: 7}]\n");
const memory = file("memory.yaml", "resources: {memory_mib: 7}\n");

test("an error names the flag that gave the field its value", async (t) => {
  for (const [args, flag, field] of [
    ["--vcpu 99", "--vcpu", "resources.vcpu"],
    ["--memory 7", "--memory", "resources.memory_mib"],
    ["--address 300.1.1.1", "--address", "interfaces[0].address"],
    ["--guest-name a/b", "--guest-name", "interfaces[0].guest_name"],
    ["--dns-search -", "--dns-search", "dns.search[0]"],
    ["--kernel vmlinux", "--kernel", "boot.kernel"],
    ["--disk /a --disk b", "--disk b", "boot.disks[1].path"],
    ["--interface a --interface b,mac=x", "--interface b,mac=x", "interfaces[1].mac"],
    ["--network lan --interface b,mac=x", "--interface b,mac=x", "interfaces[1].mac"],
    ["--label =.x=1 -l .x=1", "--label", undefined],
    ["-l ok=1 --label .x=1", "--label", 'labels[".x"]'],
    ["--publish 1:2 -p 1:3", "--publish 1:3", "ports[1]"],
    ["--timeout 1ms", "--timeout", "timeout_ms"],
    ["--request-id é", "--request-id", "request_id"],
    ["taken --name taken", "--name", "name"],
    // Of a file with two interfaces, the flag's is the third.
    [`-f ${two}`, undefined, "interfaces[1].mtu"],
    [`-f ${two} --interface a,mtu=8`, undefined, "interfaces[1].mtu"],
    [`-f ${two} --mtu 8`, "--mtu", "interfaces[0].mtu"],
    [`-f ${memory}`, undefined, "resources.memory_mib"],
    [`-f ${memory} --vcpu 2`, undefined, "resources.memory_mib"],
    [`-f ${memory} --memory 8`, "--memory", "resources.memory_mib"],
  ] as [string, string | undefined, string | undefined][]) {
    const done = await podnet(["create", ...args.split(" ")], here);
    t.not(done.code, 0, args);
    t.is(/^ {2}flag: (.*)$/m.exec(done.err)?.[1], flag, `${args}\n${done.err}`);
    if (field !== undefined)
      t.true(/^ {2}field: (.*)$/m.exec(done.err)?.[1]?.startsWith(field), `${args}\n${done.err}`);
  }
});

test("run names its flags, and gives the pod its own policy", async (t) => {
  const rules = file("rules.yaml", "default: deny\n");
  const run = (...args: string[]) => podnet(["run", "-d", ...args, "/nowhere.squashfs"], here);
  t.is((await run("--name", "guarded", "--policy", rules, "--cpus", "2")).code, 0);
  const { spec } = daemon.calls.creates.find((each) => each.spec?.name === "guarded") ?? {};
  t.like(spec, { policy: { default: "deny" }, resources: { vcpu: 2 } });
  for (const [flag, value] of [
    ["--cpus", "99"],
    ["--workdir", "here"],
    ["--user", "a b"],
    ["--stop-timeout", "20m"],
  ] as const) {
    const { code, err } = await run(flag, value);
    t.not(code, 0, err);
    t.true(err.includes(`  flag: ${flag}\n`), err);
  }
});

test("programs get the flag too", async (t) => {
  const { err } = await podnet(["create", "--vcpu", "0", "-o", "json"], here);
  t.like(JSON.parse(err), { error: { field: "resources.vcpu", flag: "--vcpu" } });
  const other = await podnet(["get", "nosuch", "-o", "json"], here);
  t.like(JSON.parse(other.err), { error: { field: "id_or_name", flag: "", argument: "POD" } });
});

/** A podnetd that refuses every call because of one field. */
async function refuse(field: string) {
  const thrown = () => new PodnetError("INVALID_ARGUMENT", "It is wrong", { field });
  const refusals = (service: DescService) =>
    Object.fromEntries(
      Object.values(service.method).map(({ localName, methodKind }) => [
        localName,
        methodKind === "unary" || methodKind === "client_streaming"
          ? () => {
              throw thrown();
            }
          : // biome-ignore lint/correctness/useYield: it fails before its first message
            // oxlint-disable-next-line require-yield -- it fails before its first message
            async function* () {
              throw thrown();
            },
      ]),
    );
  return serve((router) => {
    for (const service of [PodService, NetworkService, PolicyService, NodeService, ImageService])
      addService(router, service, refusals(service));
  });
}

test("every command names what was typed for a field, by its own tree of flags and arguments", async (t) => {
  for (const [field, ...lines] of [
    [
      "id_or_name",
      "get web → argument: POD",
      "stop a → argument: PODS",
      "exec web true → argument: POD",
      "cp here web:/tmp → argument: DESTINATION",
      "cp web:/tmp here → argument: SOURCE",
    ],
    ["guest_name", "limit web --interface eth1 --in 1mbit → flag: --interface"],
    ["guest_name", "interface remove web eth1 → argument: NAME"],
    ["ports[0].pod_port", "publish web 1:2 → argument: SPEC"],
    ["resources.vcpu", "update web --vcpu 2 → flag: --vcpu", "update web --memory 64 → nothing"],
    ["resources.memory_mib", "update web --memory 64 → flag: --memory"],
    ["name", "network get lan → argument: NAME", "policy delete p → argument: NAME"],
    ["reference", "image inspect web → argument: IMAGE", "image rm web → argument: IMAGE"],
    ["destination", "trace web 10.0.0.1 → argument: DESTINATION"],
    ["protocol", "trace web 10.0.0.1 --protocol icmp → flag: --protocol"],
    ['set["a"]', "label web a=b → argument: CHANGE"],
    ["set", "label web a → argument: CHANGE"],
    ["condition", "wait web --for prot:22 → flag: --for"],
    ["level", "log-level debug → argument: LEVEL"],
    ["exec_id", "execs get 12 → argument: ID"],
    ["signal", "execs kill 12 --signal 9 → flag: --signal", "execs kill 12 → nothing"],
    ["tail_lines", "logs web --tail 3 → flag: --tail"],
    ["for_s", "policy learn web --for 3s → flag: --for"],
    ["nothing.of[1].that", "get web → nothing"],
  ] as [string, ...string[]][]) {
    const refusing = await refuse(field);
    for (const line of lines) {
      const [typed = "", wanted = ""] = line.split(" → ");
      const { code, err } = await podnet(typed.split(" "), { socket: refusing.h2 });
      t.not(code, 0, line);
      t.true(err.includes(`field: ${field}\n`), `${line}: ${err}`);
      t.is(/^ {2}((?:flag|argument): .*)$/m.exec(err)?.[1] ?? "nothing", wanted, line);
    }
    await refusing.kill();
  }
});

test("a name that a field has on the command line belongs to a flag or an argument", (t) => {
  const names = new Set<string>();
  const collect = (command: Command): void => {
    for (const { long } of command.options) names.add(String(long).slice(2));
    for (const argument of command.registeredArguments) names.add(argument.name());
    for (const each of command.commands) collect(each);
  };
  collect(buildProgram(contextOf(processIo())));
  for (const name of Object.values(otherNames).flat()) t.true(names.has(name), name);
});

test("a value that a terminal would obey is shown", async (t) => {
  const { err } = await podnet(["create", "--disk", "\u001b]0;x\u0007"], here);
  t.regex(err, /flag: --disk \\u001b/);
  t.false(err.includes("\u001b]"));
});

test("the flag of a field: its own, of what it is part of, or of its only part", (t) => {
  const given = new GivenFlags();
  given.add("interfaces[0].mtu", "--mtu");
  given.add("interfaces[1]", "--interface b");
  given.add("dns.servers", "--dns");
  given.add("dns.search", "--dns-search");
  given.add("name", "--name");
  for (const [field, flag] of [
    ["interfaces[0].mtu", "--mtu"],
    ["interfaces[0]", "--mtu"],
    ["interfaces[1].port.vlan", "--interface b"],
    ["interfaces[10].mtu", undefined],
    ["interfaces[0].mtus", undefined],
    ["interfaces", undefined],
    ["dns.servers[2]", "--dns"],
    ["dns", undefined],
    ["names", undefined],
    ["", undefined],
  ] as [string, string | undefined][])
    t.is(given.flagOf(field), flag, field);
});
