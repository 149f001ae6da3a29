import { createHash } from "node:crypto";
import { isAbsolute } from "node:path";
import { signalFromText } from "../../../api/validate/process.ts";
import { PodnetError } from "../../../core/errors.ts";
import { parseUserText } from "../../../core/user-text.ts";
import { type Architecture, hostArchitecture } from "../../../hypervisor/architecture.ts";
import type { StartContainer } from "../../../guest-init/protocol/container-messages.ts";
import { environmentOf, type FoundImage } from "../../pods/process/plan-process.ts";
import {
  type ContainerConfig,
  type LinuxContainerSecurityContext,
  NamespaceMode,
  ProfileType,
  SupplementalGroupsPolicy,
} from "../gen/cri_pb.ts";
import { refuseLabels, refuseOldProfiles, refuseUsers } from "../refusals.ts";
import { capabilitiesOf } from "./capabilities.ts";
import { limitsOf } from "./container-limits.ts";
import { systemCallFilter } from "../seccomp/filter-of-container.ts";
import type { ContainerPlan } from "./rows.ts";

const termSignal = 15;

/**
 * The container that Kubernetes asks for. Throws `INVALID_ARGUMENT`, and `UNSUPPORTED` for what a
 * container in a machine cannot have. Pure.
 */
export function planContainer(
  config: ContainerConfig,
  image: FoundImage,
  log: string | undefined,
  architecture: Architecture = hostArchitecture,
): ContainerPlan {
  const { metadata, linux } = config;
  if (metadata === undefined || metadata.name === "")
    throw new PodnetError("INVALID_ARGUMENT", "The container has no name", {
      field: "config.metadata",
      hint: "Give metadata with name and attempt",
    });
  if (image.type !== "root")
    throw new PodnetError("INVALID_ARGUMENT", "The image is a disk with a system of its own", {
      field: "config.image",
      hint: "Use an image of a container",
    });
  if (config.devices.length + config.cdiDevices.length > 0)
    throw cannot("give a container devices of the host", "devices");
  if (config.windows !== undefined) throw cannot("run a container of Windows", "windows");
  if (config.stopSignal !== 0)
    throw cannot(
      "stop a container by another signal than its image's",
      "stop_signal",
      "Leave lifecycle.stopSignal out of the pod",
    );
  const context = linux?.securityContext;
  refuseContext(context);
  const stop = image.config.stopSignal;
  return {
    metadata: { name: metadata.name, attempt: metadata.attempt },
    labels: config.labels,
    annotations: config.annotations,
    image: config.image?.image ?? "",
    digest: image.digest,
    disk: diskOf(image.digest),
    ...(log === undefined ? {} : { log }),
    logPath: config.logPath,
    mounts: config.mounts.map(({ containerPath, hostPath, readonly }) => ({
      containerPath,
      hostPath,
      readonly,
    })),
    ...(config.stdinOnce ? { stdinOnce: true } : {}),
    stopSignal: stop === "" ? termSignal : signalFromText(stop, "config.image"),
    start: {
      ...startOf(config, image, context, architecture),
      limits: limitsOf(linux?.resources),
    },
  };
}

/** A disk's name has 20 characters at most. */
const diskOf = (digest: string): string =>
  `image-${createHash("sha256").update(digest).digest("hex").slice(0, 14)}`;

function startOf(
  config: ContainerConfig,
  { config: ofImage }: FoundImage,
  context: LinuxContainerSecurityContext | undefined,
  architecture: Architecture,
): Omit<StartContainer, "id"> {
  const { command, args, workingDir, envs } = config;
  // A command replaces the image's entrypoint, and its command with it.
  const rest = args.length > 0 || command.length > 0 ? args : ofImage.command;
  const all = [...(command.length > 0 ? command : ofImage.entrypoint), ...rest];
  if (all.length === 0 || all[0] === "")
    throw new PodnetError("INVALID_ARGUMENT", "Nothing says which program the container runs", {
      field: "config.command",
      hint: "The image has neither an entrypoint nor a command: give one",
    });
  const asked = Object.fromEntries(envs.map(({ key, value }) => [key, value]));
  const directory = workingDir === "" ? ofImage.directory : workingDir;
  const user = userOf(context, ofImage.user);
  // A user with a group has that group and those that are given, and no other.
  const isStrict = context?.supplementalGroupsPolicy === SupplementalGroupsPolicy.STRICT;
  if (isStrict && !user.includes(":"))
    throw cannot(
      "keep a container's user out of the groups that its image puts it in",
      "linux.security_context.supplemental_groups_policy",
      "Give securityContext.runAsGroup too, or leave supplementalGroupsPolicy out of the pod",
    );
  const capabilities =
    context?.privileged === true ? undefined : capabilitiesOf(context?.capabilities);
  const filter = systemCallFilter(context, capabilities, architecture);
  const processes = processesOf(context);
  return {
    args: all,
    env: environmentOf(ofImage.environment, asked),
    ...(user === "" ? {} : { user }),
    groups: (context?.supplementalGroups ?? []).map((group) => idOf(group, "supplemental_groups")),
    workdir: isAbsolute(directory) ? directory : `/${directory}`,
    terminal: config.tty,
    stdin: config.stdin,
    readOnly: context?.readonlyRootfs ?? false,
    ...(capabilities === undefined ? {} : { capabilities }),
    noNewPrivileges: context?.noNewPrivs ?? false,
    maskedPaths: pathsOf(context?.maskedPaths ?? [], "masked_paths"),
    readOnlyPaths: pathsOf(context?.readonlyPaths ?? [], "readonly_paths"),
    ...(processes === undefined ? {} : { processes }),
    ...(filter === undefined ? {} : { filter }),
  };
}

const of = (field: string): string => `config.linux.security_context.${field}`;

const cannot = (what: string, field: string, hint = "Leave it out of the pod"): PodnetError =>
  new PodnetError("UNSUPPORTED", `podnet cannot ${what}`, { field: `config.${field}`, hint });

/** What the machine already is, and what it cannot be. */
function refuseContext(context: LinuxContainerSecurityContext | undefined): void {
  if (context === undefined) return;
  const at = "config.linux.security_context";
  refuseLabels(context.selinuxOptions, at);
  refuseUsers(context.namespaceOptions?.usernsOptions, at);
  refuseOldProfiles(context, at);
  const { network, ipc } = context.namespaceOptions ?? {};
  for (const [which, mode] of [
    ["network", network],
    ["ipc", ipc],
  ] as const)
    if (mode !== undefined && mode !== NamespaceMode.POD)
      throw cannot(
        `give a container a ${which} namespace other than its pod's`,
        `linux.security_context.namespace_options.${which}`,
      );
  const { apparmor } = context;
  if (apparmor !== undefined && apparmor.profileType !== ProfileType.UNCONFINED)
    throw cannot(
      "confine a container by AppArmor",
      "linux.security_context.apparmor",
      "Its machine and seccomp confine it: leave appArmorProfile out of the pod",
    );
}

/** The containers that it shares processes with; undefined for none. */
function processesOf(context: LinuxContainerSecurityContext | undefined) {
  const { pid = NamespaceMode.CONTAINER, targetId = "" } = context?.namespaceOptions ?? {};
  const at = "linux.security_context.namespace_options";
  switch (pid) {
    case NamespaceMode.CONTAINER:
      return undefined;
    case NamespaceMode.POD:
      return { of: "pod" } as const;
    case NamespaceMode.TARGET:
      if (targetId !== "") return { of: "container", id: targetId } as const;
      throw new PodnetError("INVALID_ARGUMENT", "No container is named to share processes with", {
        field: `config.${at}.target_id`,
        hint: "Give target_id with the mode TARGET",
      });
    default:
      throw cannot(
        "share the processes of a node with a container",
        `${at}.pid`,
        "Leave hostPID out of the pod",
      );
  }
}

/** `user` or `user:group`. */
function userOf(context: LinuxContainerSecurityContext | undefined, ofImage: string): string {
  const { runAsUser, runAsUsername = "", runAsGroup } = context ?? {};
  const named =
    runAsUser === undefined ? runAsUsername : String(idOf(runAsUser.value, "run_as_user"));
  if (runAsGroup !== undefined && named === "")
    throw new PodnetError("INVALID_ARGUMENT", "A group is given without a user", {
      field: of("run_as_group"),
      hint: "Give run_as_user too",
    });
  const text =
    runAsGroup === undefined ? named : `${named}:${idOf(runAsGroup.value, "run_as_group")}`;
  const user = text === "" ? ofImage : text;
  parseUserText(user, of("run_as_username"));
  return user;
}

function idOf(value: bigint, field: string): number {
  if (value >= 0n && value <= 0xfffffffen) return Number(value);
  throw new PodnetError("INVALID_ARGUMENT", `${value} is not a user or group`, {
    field: of(field),
    hint: "Use 0 to 4294967294",
  });
}

function pathsOf(paths: readonly string[], field: string): string[] {
  if (paths.length > 64 || paths.some((path) => !/^(?:\/(?!\.{1,2}(?:\/|$))[^/\0]+)+$/.test(path)))
    throw new PodnetError("INVALID_ARGUMENT", "A path is not absolute, or there are too many", {
      field: of(field),
      hint: 'Give at most 64 absolute paths without "." and ".."',
    });
  return [...paths];
}
