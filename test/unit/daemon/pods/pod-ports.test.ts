import test from "ava";
import fc from "fast-check";
import { portAlone, portsOf } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import type { InterfacePlan, PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";

/** What ports are made of. */
const planOf = (interfaces: readonly InterfacePlan[]): PodPlan =>
  ({ podId: "abcdefghijkl", agent: "own", interfaces }) as unknown as PodPlan;

const nicOn = (position: number, bridge: string | undefined): InterfacePlan =>
  ({
    position,
    guestName: `eth${position}`,
    network: bridge,
    ...(bridge === undefined ? {} : { bridge }),
    addresses: [`10.0.${position}.2/24`, `fd00:${position}::2/64`],
    mtu: 1500,
    gateways: [],
    nic: { tap: `tap${position}`, mac: `52:54:00:00:00:0${position}` },
  }) as unknown as InterfacePlan;

const loopback = (position: number): InterfacePlan =>
  ({
    position,
    guestName: "lo",
    addresses: ["10.9.9.9/32"],
    mtu: 65536,
    gateways: [],
  }) as unknown as InterfacePlan;

const sharing = (plan: PodPlan): string[] =>
  portsOf(plan, []).ports.flatMap((port) => (port.sharing === true ? [port.tap] : []));

test("ports of a pod in networks share its connections, until one of them is left", (t) => {
  const plan = planOf([nicOn(0, "red"), loopback(1), nicOn(2, "red"), nicOn(3, "blue")]);
  t.deepEqual(sharing(plan), ["tap0", "tap2", "tap3"]);
  const without = (...positions: number[]): PodPlan =>
    planOf(
      plan.interfaces.map((each) =>
        positions.includes(each.position) ? { ...each, leaving: true as const } : each,
      ),
    );
  t.deepEqual(sharing(without(0)), ["tap2", "tap3"]);
  t.deepEqual(sharing(without(0, 2)), []);
});

test("no port shares with lo, a bridge of another program, or a tap", (t) => {
  const foreign = { ...nicOn(2, "br0"), network: undefined } as unknown as InterfacePlan;
  t.deepEqual(sharing(planOf([nicOn(0, "red"), loopback(1), foreign, nicOn(3, undefined)])), []);
});

test("a port is alike whether it is looked at alone or with others", (t) => {
  const kinds = fc.constantFrom("red", "blue", undefined, "lo" as const);
  const one = fc.record({ kind: kinds, leaving: fc.boolean() });
  fc.assert(
    fc.property(fc.array(one, { minLength: 1, maxLength: 6 }), (some) => {
      const plan = planOf(
        some.map(({ kind, leaving }, position) => ({
          ...(kind === "lo" ? loopback(position) : nicOn(position, kind)),
          ...(leaving ? { leaving: true as const } : {}),
        })),
      );
      const alone = plan.interfaces
        .filter(({ leaving }) => leaving !== true)
        .flatMap((each) => portAlone(plan, each).ports);
      t.deepEqual(alone, [...portsOf(plan, []).ports]);
    }),
  );
});
