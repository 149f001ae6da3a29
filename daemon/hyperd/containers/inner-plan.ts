import { createHash, randomBytes } from "node:crypto";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { invalid } from "../../../api/fields.ts";
import type { ShareSpec } from "../../../api/pod-spec.ts";
import { signalFromText } from "../../../api/validate/process.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { parseUserText } from "../../../core/user-text.ts";
import { planContainer } from "../../cri/containers/container-spec.ts";
import { type GuestMount, hostCopies } from "../../cri/containers/guest-mounts.ts";
import type { ContainerPlan, StoredMount } from "../../cri/containers/rows.ts";
import { ContainerConfigSchema } from "../../cri/gen/cri_pb.ts";
import type { FoundImage } from "../../pods/process/plan-process.ts";
import type { MountedVolume } from "./container.ts";
import { containerName } from "../requests/container-name.ts";
import { filesOf } from "../requests/pod-files.ts";
import type { UserContainer, UserFile, UserVolume } from "../requests/user-pod.ts";

const most = { files: 256, fileBytes: 512 * 1024 } as const;

export interface InnerPod {
  readonly files: readonly UserFile[];
  readonly volumes: readonly Pick<UserVolume, "name" | "source">[];
  /** The volumes' sources that its machine shares. */
  readonly shares: readonly Pick<ShareSpec, "hostPath" | "path">[];
  readonly tty: boolean;
}

/** A container in a machine that is to be made. */
export interface InnerContainer {
  readonly plan: ContainerPlan;
  readonly image: FoundImage;
}

/**
 * The container in a machine that a container of hyperd's is. `logs` is the directory of its pod's
 * logs. Throws `INVALID_ARGUMENT`, and `UNSUPPORTED` for what it cannot have.
 */
export function innerContainer(
  container: UserContainer,
  pod: InnerPod,
  image: FoundImage,
  logs: string,
  field: string,
): InnerContainer {
  const random = randomBytes(8).toString("hex");
  const { name = "", group = "", additionalgroups = [] } = container.user ?? {};
  const user = [name, group].filter((each) => each !== "").join(":");
  parseUserText(user, `${field}.user`);
  const config = create(ContainerConfigSchema, {
    metadata: { name: containerName(container.name, `${field}.name`) || `container-${random}` },
    image: { image: container.image },
    command: container.entrypoint,
    args: container.command,
    workingDir: container.workdir,
    envs: container.envs.map(({ env, value }) => ({ key: env, value })),
    labels: container.labels,
    tty: container.tty || pod.tty,
    linux: {
      securityContext: {
        supplementalGroups: additionalgroups.map((each, i) =>
          groupOf(each, `${field}.user.additionalGroups[${i}]`),
        ),
      },
    },
  });
  const plan = planContainer(config, image, join(logs, `${random}.log`));
  const { stopsignal } = container;
  return {
    image,
    plan: {
      ...plan,
      again: mountsOf(container, pod, field),
      ...(stopsignal === ""
        ? {}
        : { stopSignal: signalFromText(stopsignal, `${field}.StopSignal`) }),
      start: { ...plan.start, stdin: true, ...(user === "" ? {} : { user }) },
    },
  };
}

/**
 * What is laid into a container, as its plan has it, with copies of the host's files as they are
 * now. `within` are the directories that may be copied from. Throws `PERMISSION_DENIED`,
 * `INVALID_ARGUMENT`, `UNSUPPORTED`, `LIMIT_REACHED`.
 */
export function guestMountsOf(
  { again = [] }: Pick<ContainerPlan, "again">,
  within: readonly string[],
): GuestMount[] {
  const sources = again.flatMap((mount) =>
    "source" in mount
      ? [{ hostPath: mount.source, target: mount.path, field: `volumes["${mount.name}"].source` }]
      : [],
  );
  const own = again.flatMap((mount): GuestMount[] => {
    if ("source" in mount) return [];
    if ("share" in mount) {
      const { path, share, readOnly, mode, uid, gid } = mount;
      return [{ path, share, readOnly, mode, uid, gid }];
    }
    if (!("base64" in mount)) return [mount];
    const { base64, ...rest } = mount;
    return [{ ...rest, data: Buffer.from(base64, "base64") }];
  });
  const copies = hostCopies(sources, { within, setting: "hyperd.mount_paths" });
  // What is in a directory comes after it.
  return [...copies, ...own].toSorted((a, b) => depthOf(a) - depthOf(b));
}

const depthOf = ({ path }: Pick<GuestMount, "path">): number => path.split("/").length;

/** How a volume is called in the machine: containers share it by that. */
const hashOf = (volume: string): string =>
  createHash("sha256").update(`hyperd ${volume}`).digest("hex").slice(0, 32);

/** The volumes of a container by the names that their pod gave them; others have an empty name. */
export const volumesOf = (
  { again = [] }: Pick<ContainerPlan, "again">,
  names: readonly string[] = [],
): MountedVolume[] =>
  again.flatMap((mount) =>
    "source" in mount
      ? [{ name: mount.name, path: mount.path, readOnly: true }]
      : "share" in mount
        ? [{ name: mount.name, path: mount.path, readOnly: mount.readOnly }]
        : "volume" in mount
          ? [
              {
                name: names.find((name) => hashOf(name) === mount.volume) ?? "",
                path: mount.path,
                readOnly: mount.readOnly,
              },
            ]
          : [],
  );

function groupOf(group: string, field: string): bigint {
  if (/^\d{1,10}$/.test(group)) return BigInt(group);
  throw new PodnetError("UNSUPPORTED", `podnet does not look group "${printable(group)}" up`, {
    field,
    hint: "Give its number in the image",
  });
}

function mountsOf(container: UserContainer, pod: InnerPod, field: string): StoredMount[] {
  if (container.files.length > most.files)
    throw new PodnetError("LIMIT_REACHED", `A container may have ${most.files} files`, {
      field: `${field}.files`,
      hint: "Put them into the image",
      details: { limit: most.files },
    });
  const volumes = container.volumes.map(({ path, volume, readonly, detail }, i): StoredMount => {
    const where = `${field}.volumes[${i}]`;
    const name = detail?.name || volume;
    const { source } = detail ?? pod.volumes.find((each) => each.name === name) ?? {};
    if (source === undefined)
      throw invalid(`${where}.volume`, `The pod has no volume "${printable(name)}"`, "Add it");
    const shared = pod.shares.find(({ hostPath }) => hostPath === source);
    if (shared !== undefined && detail === undefined)
      return {
        share: { at: shared.path, below: "" },
        name,
        path: pathOf(path, `${where}.path`),
        readOnly: readonly,
        mode: 0,
        uid: 0,
        gid: 0,
      };
    if (source !== "" && !readonly)
      throw new PodnetError(
        "UNSUPPORTED",
        `What a container writes to "${printable(source)}" would not reach the host`,
        {
          field: `${where}.readOnly`,
          hint: "Set readOnly for a copy, or have a container of the pod's create write to the volume",
        },
      );
    if (source !== "") return { source, name, path: pathOf(path, `${where}.path`) };
    return {
      path: pathOf(path, `${where}.path`),
      volume: hashOf(name),
      readOnly: readonly,
      mode: 0o777,
      uid: 0,
      gid: 0,
    };
  });
  const files = filesOf(container.files, pod.files, field).map((file, i) => {
    const where = `${field}.files[${i}]`;
    const { path = "", content = new Uint8Array(), mode = 0, uid = 0, gid = 0 } = file;
    if (content.length > most.fileBytes)
      throw new PodnetError("LIMIT_REACHED", `A file may have ${most.fileBytes} bytes`, {
        field: where,
        hint: "Put it into the image",
        details: { limit: most.fileBytes },
      });
    const base64 = Buffer.from(content).toString("base64");
    return { path: pathOf(path, `${where}.path`), mode, uid, gid, readOnly: false, base64 };
  });
  return [...volumes, ...files];
}

function pathOf(path: string, field: string): string {
  if (path.length <= 4000 && /^(?:\/(?!\.{1,2}(?:\/|$))[^/\0]+)+$/.test(path)) return path;
  throw invalid(
    field,
    `"${printable(path)}" is not a path in a container`,
    'Give an absolute path other than /, without "." and ".."',
  );
}
