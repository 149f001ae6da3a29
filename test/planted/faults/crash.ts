import type { Fault } from "../fault.ts";

const points = "test/unit/test/crash-points.test.ts";
const notice = "test/crash/notice.test.ts";
const pool = "test/unit/daemon/pods/pool.test.ts";
const waiting = {
  file: "test/crash/pool.test.ts",
  title: "machines that wait go with their podnetd, and no pod gets one of them",
};
const left = { file: notice, title: "what is left of a case is named by the matrix" };

/** The crash matrix itself: points that are passed over, and what it does not see. */
export const crashFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "the matrix passes over what comes after a call",
    file: "test/crash/points.ts",
    find: 'if (side === "failed") return false;',
    put: 'if (side !== "before") return false;',
    noticedBy: {
      file: points,
      title: "each side of each call is a point, and every action is taken at it",
    },
  },
  {
    kind: "record",
    name: "the matrix takes every netlink call for a matter of chance",
    file: "test/crash/points.ts",
    find: "/^netlink:list (?:links|addresses):/.test(point)",
    put: "/^netlink:/.test(point)",
    noticedBy: {
      file: points,
      title:
        "only looks for drift come by chance, and in a recovery and a start they are points too",
    },
  },
  {
    kind: "undo",
    name: "a machine whose podnetd was killed is left to itself",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "await host.driver.reap(live.record, live.plan.vm);",
    put: "void live.record;",
    noticedBy: {
      file: notice,
      title: "a create that is killed just before it is done leaves nothing",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "machines that wait are taken for lost pods by the next podnetd",
    file: "daemon/pods/lifecycle/orphans.ts",
    find: "template || there.has(parkedPrefix + podId)",
    put: "template",
    noticedBy: {
      file: "test/vm/pool.test.ts",
      title: "podnetd killed: pods run on, and machines that waited are ended",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "machines that wait are not ended by the next podnetd",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "await host.driver.reap(undefined, plan);",
    put: "void host.driver;",
    noticedBy: waiting,
    slow: true,
  },
  {
    kind: "undo",
    name: "a machine of a pool that cannot be ended is forgotten",
    file: "daemon/pods/pool/pool.ts",
    find: "this.#unended.add(machine);",
    put: "",
    noticedBy: { file: pool, title: "a machine that cannot be ended is ended later" },
  },
  {
    kind: "undo",
    name: "a machine that fails to be parked loses its marker though it runs",
    file: "daemon/pods/pool/park.ts",
    find: "await end(begun);",
    put: "await end(begun);\n    unmark(plan);",
    noticedBy: {
      file: pool,
      title: "a machine that fails while it is made has its marker until it has ended",
    },
  },
  {
    kind: "repair",
    name: "the matrix does not compare what is there after a case",
    file: "test/crash/inspect.ts",
    find: "problems.push(...(await worker.changes(baselines.withBystander, recorded(pods))));",
    put: "void [baselines, recorded];",
    noticedBy: left,
    slow: true,
  },
  {
    kind: "repair",
    name: "the inventory has no routes",
    file: "test/lab/inventory.ts",
    find: '.map((route) => words("route", route, ...known)),',
    put: ".flatMap(() => []),",
    noticedBy: left,
    slow: true,
  },
];
