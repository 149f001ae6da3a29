import { isAbsolute } from "node:path";
import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { printable } from "../../core/names.ts";
import { PodnetError } from "../../core/errors.ts";
import { isDamagedAttachment, type AttachmentState } from "../containers/attachment-rows.ts";
import type { AttachmentPlan } from "../containers/attachment-plan.ts";
import type { Attachments } from "../containers/attachments.ts";
import type { AnyAttachment } from "../containers/store.ts";
import { hostLinkOf } from "../containers/link-names.ts";
import { type ListedRuntime, listedRuntimes } from "../containers/cni/network-list.ts";
import { denialView } from "../policies/denials.ts";
import { guardCounts } from "../traffic/guard-counts.ts";
import { containerSender } from "../trace/sender.ts";
import { note, type ServiceParts } from "./context.ts";
import { streamLiveTrace, tracedPath } from "./pod-packets.ts";
import { time } from "./views.ts";

/** Default directories of runtimes. */
const usual = { dir: "/etc/cni/net.d", binDir: "/opt/cni/bin" } as const;

/** The service about container runtimes. */
export function cniService(parts: ServiceParts): ServiceImpl<typeof wire.CniService> {
  const { attachments, networks, installation } = parts;
  /** The attachments of the one container whose id begins so. Throws `INVALID_ARGUMENT`. */
  const plansOf = (container: string): readonly AttachmentPlan[] => {
    const plans = attachments
      .listAny()
      .map((row) => attachments.readable(row).plan)
      .filter(({ containerId }) => container !== "" && containerId.startsWith(container));
    const [found, ...others] = new Set(plans.map(({ containerId }) => containerId));
    if (found === undefined || others.length > 0) throw notOne(container, others.length > 0);
    return plans;
  };
  return {
    list: () => ({
      attachments: attachments.listAny().map((row) => attachmentView(row, attachments)),
    }),

    async guard({ container }, { signal }) {
      const plans = plansOf(container);
      const links = plans.map((plan) => ({ interface: plan.ifName, link: hostLinkOf(plan) }));
      const ids = plans.map(({ id }) => id);
      return {
        counts: await guardCounts(links, parts.network.observe, signal),
        denials: (await parts.denials.list(signal, ids)).map(denialView),
      };
    },

    trace: ({ container, ...asked }) =>
      tracedPath(parts, containerSender(plansOf(container)), asked),

    async *traceLive({ container, bounds, ...asked }, context) {
      const sender = containerSender(plansOf(container));
      note(parts, context, `trace ${container}`);
      yield* streamLiveTrace(parts, sender, asked, bounds, context);
    },

    install({ dir, binDir, network, runtime }, context) {
      if (!parts.config.cni.enabled)
        throw new PodnetError("UNSUPPORTED", "podnetd does not serve container runtimes", {
          hint: "Set cni.enabled to true",
        });
      const asked = {
        dir: absolute(dir || usual.dir, "dir"),
        binDir: absolute(binDir || usual.binDir, "bin_dir"),
        ...(network === "" ? {} : { network: networks.find(network).name }),
        ...(runtime === "" ? {} : { runtime: listed(runtime) }),
      };
      note(parts, context, `install the CNI plugin in ${asked.dir} and ${asked.binDir}`);
      return { paths: installation.install(asked) };
    },

    uninstall({ force }, context) {
      note(parts, context, "uninstall the CNI plugin");
      return { paths: installation.uninstall({ force }) };
    },
  };
}

const notOne = (container: string, several: boolean): PodnetError =>
  new PodnetError(
    "INVALID_ARGUMENT",
    `${several ? "Several containers have an id" : "No container has an id"} that begins with "${printable(container)}"`,
    { field: "container", hint: "Give the id of a container, as `podnet cni list` shows it" },
  );

function listed(runtime: string): ListedRuntime {
  const known = listedRuntimes.find((each) => each === runtime);
  if (known !== undefined) return known;
  throw new PodnetError("INVALID_ARGUMENT", `No list is made for "${printable(runtime)}" alone`, {
    field: "runtime",
    hint: "Write podman, or leave it out: all other runtimes use one list",
  });
}

function absolute(path: string, field: string): string {
  if (isAbsolute(path)) return path;
  throw new PodnetError("INVALID_ARGUMENT", `"${path}" is no absolute path`, {
    field,
    hint: "Write a path from the root",
  });
}

const states: Readonly<Record<AttachmentState, wire.AttachmentState>> = {
  adding: wire.AttachmentState.ADDING,
  ready: wire.AttachmentState.READY,
  deleting: wire.AttachmentState.DELETING,
};

function attachmentView(found: AnyAttachment, attachments: Attachments): wire.Attachment {
  const { plan, ...row } = attachments.readable(found);
  const { hostLink, mtu } = attachments.fragmentOf(plan);
  return create(wire.AttachmentSchema, {
    id: row.id,
    containerId: row.containerId,
    ifName: row.ifName,
    config: row.config,
    network: row.network,
    netns: row.netns,
    state: states[row.state],
    addresses: [...plan.addresses],
    mac: plan.mac,
    // Of a damaged one the MTU is not known.
    mtu: isDamagedAttachment(found) ? 0 : mtu,
    hostLink,
    pod: plan.pod ?? "",
    ports: (plan.published ?? []).flatMap(({ protocol, hostPort, podPort, at }) =>
      at.map(
        ({ hostIp, podIp }) =>
          `${protocol} ${authority(hostIp, hostPort)} to ${authority(podIp, podPort)}`,
      ),
    ),
    createdAt: time(row.createdMs),
    trouble: attachments.troubleOf(found) ?? "",
  });
}

const authority = (ip: string, port: number): string =>
  ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
