import { create, type JsonObject, type JsonValue, toJson } from "@bufbuild/protobuf";
import { DiskState, type Pod } from "../../../api/gen/podnet/v1/pod_pb.ts";
import {
  type DataDisk,
  DataDiskSchema,
  type PodSpec,
} from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { differences } from "./differences.ts";
import type { Change, Item, Step } from "./item.ts";

type DiskChanges = Pick<Item, "changes" | "steps">;

interface NamedDisk {
  readonly name: string;
  /** As the document writes it. */
  readonly named: JsonObject;
  readonly wanted: DataDisk;
}

/**
 * What makes a pod's plugged disks those that its document names. A disk is found by its name.
 * Nothing on a disk is lost: one that podnetd made is not removed by a document without it.
 */
export function diskChanges(
  { named, spec }: { readonly named: JsonObject; readonly spec: PodSpec },
  pod: Pod,
): DiskChanges {
  if (!Object.hasOwn(named, "disks")) return { changes: [], steps: [] };
  const wanted = withNames(spec.disks, named["disks"]);
  const there = pod.disks.filter(({ state }) => state !== DiskState.UNPLUG_PENDING);
  const added = wanted.filter(({ name }) => there.every((is) => is.name !== name));
  const removed = there.filter(({ name }) => wanted.every((each) => each.name !== name));
  const given = removed.filter(({ madeMib }) => madeMib === 0);
  return {
    changes: [
      ...removed.map(
        ({ name, path, madeMib }): Change => ({
          field: `disks.${name}`,
          was: madeMib === 0 ? path : `${madeMib} MiB`,
          becomes: "",
          ...(madeMib === 0
            ? {}
            : {
                refused: `its data would be lost: podnet disk remove ${pod.name} ${name}, then apply again`,
              }),
        }),
      ),
      ...wanted.flatMap((disk) => fixedChanges(disk, pod)),
      ...added.map(({ name, named: own }) => ({
        field: `disks.${name}`,
        was: "",
        becomes: JSON.stringify(own),
      })),
    ],
    // Slots of disks that go are free for those that come.
    steps: [
      ...given.map(
        ({ name }): Step =>
          ({ pods }, signal) =>
            pods.removeDisk({ idOrName: pod.id, name }, { signal }),
      ),
      ...added.map(
        ({ name, wanted: disk }): Step =>
          ({ pods }, signal) =>
            pods.addDisk({ idOrName: pod.id, disk: { ...disk, name } }, { signal }),
      ),
    ],
  };
}

/** The disks with the names that podnetd gives to those without one, at a create. */
function withNames(disks: readonly DataDisk[], named: JsonValue | undefined): NamedDisk[] {
  const taken = new Set(disks.map(({ name }) => name));
  return disks.map((wanted, i) => {
    const own = Array.isArray(named) ? named[i] : undefined;
    const name = wanted.name === "" ? freeName(taken) : wanted.name;
    taken.add(name);
    return { name, named: objectOf(own), wanted };
  });
}

function freeName(taken: ReadonlySet<string>): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? "data" : `data-${n}`;
    if (!taken.has(name)) return name;
  }
}

const objectOf = (value: JsonValue | undefined): JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};

/** What a disk of the pod has otherwise than its document says, which cannot be changed. */
function fixedChanges({ name, named, wanted }: NamedDisk, pod: Pod): Change[] {
  const is = pod.spec?.disks.find((each) => each.name === name);
  if (is === undefined) return [];
  const { name: _found, ...rest } = named;
  const format = wanted.file === "" || wanted.format !== "" ? wanted.format : "raw";
  const refused = `it is fixed for a disk's life: podnet disk remove ${pod.name} ${name}, then apply again`;
  return differences(DataDiskSchema, rest, json({ ...wanted, format }), json(is)).map((change) => ({
    ...change,
    field: `disks.${name}.${change.field}`,
    refused,
  }));
}

const json = (disk: DataDisk): JsonObject =>
  toJson(DataDiskSchema, create(DataDiskSchema, disk), { alwaysEmitImplicit: true }) as JsonObject;
