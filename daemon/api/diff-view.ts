import { create } from "@bufbuild/protobuf";
import { toErrorInfo } from "../../api/codes.ts";
import { DeviationSchema } from "../../api/gen/podnet/v1/drift_pb.ts";
import * as wire from "../../api/gen/podnet/v1/node_service_pb.ts";
import { toPodnetError } from "../../core/errors.ts";
import { onlyLook } from "../../network/bridge/inspect.ts";
import { joinText } from "../../network/tc-redirect/repair.ts";
import {
  attachmentParts,
  inspectPart,
  joinParts,
  networkParts,
  type LiveParts,
  type Part,
  partNow,
  portParts,
  servicesParts,
} from "../drift/parts.ts";
import { overlayDeviation } from "../overlays/kernel/kernel-follower.ts";
import type { ServiceParts } from "./context.ts";

/** How the host differs from what is planned for it, part by part. Changes nothing. */
export async function diffHost(
  { networks, pods, attachments, services, network, overlays }: ServiceParts,
  signal: AbortSignal,
): Promise<wire.DiffResponse> {
  const parts: wire.PartDiff[] = [];
  const live = { networks, pods, attachments, services, network };
  const all = [
    ...networkParts(networks),
    ...portParts(pods),
    ...attachmentParts(attachments),
    ...joinParts(pods),
    ...servicesParts(services),
  ];
  for (const part of all) {
    const options = { heal: onlyLook, linksOnly: false, inside: true };
    const { found, error } = await inspectPart(part, live, options, signal);
    const planned = plannedText(part, live, network);
    // A pod that ended meanwhile has no ports, and so no drift.
    if (planned === undefined) continue;
    parts.push(
      create(wire.PartDiffSchema, {
        part: part.key,
        pod: podName(part),
        planned: [...planned],
        found: found.map((each) => ({ ...each })),
        ...(error === undefined ? {} : { error: toErrorInfo(error) }),
      }),
    );
  }
  for (const { name } of overlays?.list() ?? [])
    parts.push(await overlayDiff(overlays, name, signal));
  const drift = parts.some(({ found, error }) => found.length > 0 || error !== undefined);
  return create(wire.DiffResponseSchema, { drift, parts });
}

async function overlayDiff(
  overlays: ServiceParts["overlays"],
  name: string,
  signal: AbortSignal,
): Promise<wire.PartDiff> {
  const diff = create(wire.PartDiffSchema, {
    part: `overlay ${name}`,
    planned: [...(overlays?.planned(name) ?? [])],
  });
  try {
    const lines = (await overlays?.diff(name, signal)) ?? [];
    diff.found = lines.map((line) => create(DeviationSchema, overlayDeviation(line)));
  } catch (thrown) {
    diff.error = toErrorInfo(toPodnetError(thrown));
  }
  return diff;
}

/** The planned state of a part; undefined when it no longer exists. */
function plannedText(
  part: Part,
  live: LiveParts,
  network: ServiceParts["network"],
): readonly string[] | undefined {
  if (part.kind === "join") {
    const join = live.pods.joinNow(part);
    return join && joinText(join);
  }
  if (part.kind === "services") return live.services.describe();
  const fragment = partNow(part, live);
  return fragment && network.describe(fragment);
}

const podName = (part: Part): string =>
  part.kind === "port" || part.kind === "join" ? part.podName : "";
