import { readFileSync } from "node:fs";
import type { NetworkName } from "../../../core/names.ts";
import { contains, ipOf, type Cidr } from "../../../core/address.ts";
import { resultOf } from "../../../daemon/containers/cni/answer.ts";
import { containerText, portsToHold } from "../../../daemon/containers/attachment-plan.ts";
import { attachmentFragment } from "../../../daemon/containers/attachment-fragment.ts";
import { attachmentDecisions } from "../../../daemon/store/attachments-of-decisions.ts";
import { parseStoredPlan, withCni, withNic } from "../../../daemon/pods/store/pod-plan.ts";
import { portsOf } from "../../../daemon/published/wanted-port.ts";
import { decisionsOf } from "../../../daemon/store/plans-of-decisions.ts";
import { anyAttachment, isDamagedAttachment } from "../../../daemon/containers/attachment-rows.ts";
import { hostPart } from "../../../network/containers/host-part.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const found = (fixture: string, pattern: RegExp): string[] => {
  const file = new URL(`../../fixtures/${fixture}.sql`, import.meta.url);
  return [...readFileSync(file, "utf8").matchAll(pattern)].map(([, text = ""]) => text);
};
/** Plans that earlier podnetds have stored, as the step to schema 8 leaves them. */
const pods = ["state-1", "state-5", "state-7"].flatMap((fixture) =>
  found(fixture, /'({"version":1,"podId"[^']*})'/g)
    .slice(0, 2)
    .map((text) => JSON.stringify(decisionsOf(JSON.parse(text), { interfaces: [] }))),
);
const containers = found("state-5", /'({"version":1,"id"[^']*"containerId":"attach[^']*})'/g).map(
  (text) => JSON.stringify(attachmentDecisions(JSON.parse(text))),
);

const damage = ["STATE_CORRUPT", "STATE_NEWER"] as const;
const anywhere = "10.0.0.0/8" as Cidr;

/** A pod's plan with one part put in the place of another. */
const changed = (change: (plan: StoredPod) => void): Uint8Array[] =>
  pods.map((text) => {
    const plan = JSON.parse(text) as StoredPod;
    change(plan);
    return json(plan);
  });
interface StoredPod {
  readonly vm: { podId: string; runDir: string };
  readonly interfaces: { addresses: unknown; gateways?: unknown }[];
}
const eachInterface = (over: object) =>
  changed(({ interfaces }) => {
    for (const each of interfaces) Object.assign(each, over);
  });

/** A pod's plan that is accepted can be worked with. */
function podPlan(text: string): void {
  const plan = valueOf(damage, () => parseStoredPlan(text));
  if (plan === undefined) return;
  for (const { addresses, gateways } of plan.interfaces) {
    for (const address of addresses) contains(anywhere, ipOf(address));
    for (const { gateway } of gateways) contains(anywhere, gateway);
  }
  portsOf(plan.published ?? []);
  withCni(withNic(plan.interfaces));
}

const network = { name: "default" as NetworkName, isolated: true, mtu: 1400 };
const end = { name: "br0", mac: "02:00:00:00:00:01" as never, mtu: 1500 };

/**
 * A container's row is refused for itself, never with another error; one that is accepted can be
 * worked with.
 */
function containerRow(text: string): void {
  const [, id = ""] = /"id":"([a-z2-7]{12})"/.exec(text) ?? [];
  const [, name = ""] = /"containerId":"([a-z]+)"/.exec(text) ?? [];
  const row = valueOf(["STATE_NEWER"], () =>
    anyAttachment({
      id,
      container_id: name,
      if_name: "eth0",
      config: "podnet",
      network: "default",
      netns: `/run/netns/${name}`,
      state: text.startsWith(" ") ? "gone" : "ready",
      plan: text,
      mac: null,
      host_link: null,
      created_ms: 1,
      changed_ms: 1,
    }),
  );
  if (row === undefined) return;
  if (isDamagedAttachment(row)) {
    valueOf(["STATE_CORRUPT"], () => {
      throw row.damage;
    });
    return;
  }
  const { plan } = row;
  const [part] = hostPart(attachmentFragment(plan, [network], { mtu: undefined })).ports;
  for (const address of part?.guestAddresses ?? []) contains(anywhere, ipOf(address));
  for (const address of plan.addresses) contains(anywhere, ipOf(address));
  portsOf(portsToHold(plan) ?? []);
  containerText(plan);
  resultOf(plan, { bridge: end, host: end }, undefined);
}

const versions = [1, 2, 101, 102, 0, -1, 1.5, "1", null, undefined].map((version) => ({ version }));

export const storedPlans: Target = {
  name: "stored-plans",
  files: [
    "daemon/pods/store/check-plan.ts",
    "daemon/pods/store/pod-plan.ts",
    "daemon/containers/check-attachment.ts",
    "daemon/containers/attachment-plan.ts",
    "daemon/containers/attachment-rows.ts",
    "daemon/store/check.ts",
    "daemon/store/stored-version.ts",
  ],
  // What is done with plans that have been read, and what other targets and tests judge.
  except: [
    "withNic",
    "withCni",
    "staying",
    "inPlaceOf",
    "isLoopback",
    "containerText",
    "portsToHold",
    "inNamespace",
    "awaitingPlugins",
    "afterPlugins",
    "specTrouble",
    "observedTrouble",
    "named",
  ],
  longest: 16_384,
  seeds: [
    ...[
      ...pods.map(utf8),
      ...versions.map(json),
      ...changed(({ vm }) => void (vm.podId = "aaaaaaaaaaaa")),
      ...changed(({ vm }) => void (vm.runDir = "/run")),
      ...eachInterface({ gateways: undefined }),
      ...["x", "fe80::1%lo", "fe80::1%lo/64", "fd00::1/129", "10.0.0.2", "10.0.0.2/x"].flatMap(
        (address) => eachInterface({ addresses: [address] }),
      ),
      ...["x", "fe80::1%lo"].flatMap((gateway) => eachInterface({ gateways: [{ gateway }] })),
      json({ version: 2, podId: "abcdefghijkl" }),
      json(null),
      json(5),
      utf8("{"),
    ].map((bytes) => chosen(0, bytes)),
    ...[
      ...containers.map(utf8),
      ...containers.map((text) => utf8(` ${text}`)),
      ...containers.map((text) => utf8(text.replace('"config":"podnet"', '"config":"other"'))),
      ...containers.map((text) => utf8(text.replace(/"bridge":"[^"]*"/, '"bridge":7'))),
      ...containers.map((text) => utf8(text.replace("/run/netns", "/run/other"))),
      ...versions.map(json),
      json(null),
      utf8("{"),
    ].map((bytes) => chosen(1, bytes)),
  ],
  words: ["version", "1", "null", "[]", "undefined", "10.0.0.2/24", "/", "%"],
  run: choosing([(bytes) => podPlan(textOf(bytes)), (bytes) => containerRow(textOf(bytes))]),
};
