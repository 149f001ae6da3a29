import { createContextValues } from "@connectrpc/connect";
import test from "ava";
import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import type { Role } from "../../../../api/roles.ts";
import { callerKey } from "../../../../daemon/listeners/callers.ts";
import { serviceService } from "../../../../daemon/api/service-service.ts";
import {
  refuseOthersLinks,
  refuseProtectedLabels,
  refuseRules,
} from "../../../../daemon/api/others-links.ts";

const network: InterfaceSpec = { network: "default" as never };
const bridge: InterfaceSpec = { kind: "bridge", bridge: "br0" as never, addresses: [] };
const tap: InterfaceSpec = { kind: "tap", tap: "t0" as never, addresses: [] };
const lo: InterfaceSpec = { kind: "loopback", addresses: [] };

const attach =
  (role: Role, ...interfaces: readonly InterfaceSpec[]) =>
  (): void =>
    refuseOthersLinks(
      interfaces,
      createContextValues().set(callerKey, { role } as never),
      (i) => `spec.interfaces[${i}]`,
    );

test("bridges and taps of others are for administrators; everything else is for whoever may create pods", (t) => {
  const unguarded: InterfaceSpec = { ...network, port: { guard: false } };
  t.like(t.throws(attach("operator", network, unguarded), { code: "PERMISSION_DENIED" }), {
    field: "spec.interfaces[1].port.guard",
  });
  for (const specs of [[network, bridge], [tap], [network, lo], [unguarded]])
    t.notThrows(attach("admin", ...specs));
  t.notThrows(attach("operator", network, lo));
  t.like(t.throws(attach("operator", network, bridge), { code: "PERMISSION_DENIED" }), {
    field: "spec.interfaces[1].bridge",
  });
  t.like(t.throws(attach("operator", tap), { code: "PERMISSION_DENIED" }), {
    field: "spec.interfaces[0].tap_kept",
  });
});

test("rules of a pod's own are for administrators", (t) => {
  const as = (role: Role) => createContextValues().set(callerKey, { role } as never);
  const policy = { default: "allow" };
  t.notThrows(() => refuseRules({ policy }, as("admin")));
  t.notThrows(() => refuseRules({}, as("operator")));
  const refused = t.throws(() => refuseRules({ policy }, as("operator")));
  t.like(refused, { code: "PERMISSION_DENIED", field: "policy" });
});

test("labels that policies rely on are for administrators, and all others for everyone", (t) => {
  const as = (role: Role) => createContextValues().set(callerKey, { role } as never);
  const keys = ["role", "podnet/x", "admin.podnet", "ADMIN.PODNET/x", "admin.podnet/"];
  t.notThrows(() => refuseProtectedLabels(keys.slice(0, 4), as("operator"), "labels"));
  t.notThrows(() => refuseProtectedLabels([...keys, "admin.podnet/zone"], as("admin"), "labels"));
  for (const key of ["admin.podnet/", "admin.podnet/zone"])
    t.like(
      t.throws(() => refuseProtectedLabels(["a", key], as("operator"), "remove")),
      { code: "PERMISSION_DENIED", field: `remove["${key}"]` },
    );
  t.throws(() => refuseProtectedLabels(["admin.podnet/zone"], createContextValues(), "set"));
});

test("checks of backends that are no pods are for administrators, by whichever call they come", async (t) => {
  const check = { timeoutS: 2, intervalS: 10, rise: 2, fall: 3 };
  const done = { endpoints: [], notices: [], backends: [], ports: [], addresses: [] };
  const call = async (how: "create" | "update" | "changeBackends", role: Role, checked = true) => {
    const services = {
      get: () => ({ ...done, network: "default", ...(checked && { check }) }),
      create: async () => done,
      update: async () => done,
      changeBackends: async () => done,
    };
    const log = { info: () => {} };
    const api = serviceService({ services, config: { network: {} }, log } as never);
    const backends = [{ address: "192.0.2.9", pod: "", port: 0 }];
    const usual = { path: "", port: 0, intervalS: 0, timeoutS: 0, rise: 0, fall: 0 };
    const spec = {
      name: "db",
      network: "default",
      addresses: ["10.96.0.9"],
      select: {},
      affinity: "",
      scope: "",
      ports: [{ port: 80, targetPort: 80, protocol: "tcp" }],
      backends,
      ...(checked && { check: usual }),
    };
    const request = how === "changeBackends" ? { name: "db", set: backends, remove: [] } : { spec };
    const values = createContextValues().set(callerKey, { role } as never);
    await api[how](request as never, { values } as never);
  };
  for (const how of ["create", "update", "changeBackends"] as const) {
    const refused = await t.throwsAsync(call(how, "operator"), { code: "PERMISSION_DENIED" }, how);
    t.regex((refused as unknown as { field: string }).field, /^(?:backends|set)\[0\]\.address$/);
    await t.notThrowsAsync(call(how, "operator", false), how);
    await t.notThrowsAsync(call(how, "admin"), how);
  }
});
