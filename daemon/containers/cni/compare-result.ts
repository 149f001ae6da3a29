import { type Mac, parseMac } from "../../../core/address.ts";
import type { AttachmentFragment, InsidePart } from "../../../network/containers/desired.ts";
import { partOf } from "../../../network/containers/routes.ts";
import type { AttachmentPlan } from "../attachment-plan.ts";
import type { AddRequest } from "./attachment-request.ts";

/** The differences of the runtime's `prevResult` from the attachment's row, a line each. Pure. */
export function compareResult(
  { ifName, addresses, mac, later, awaitsPlugins }: AttachmentPlan,
  { config, netns }: AddRequest,
): string[] {
  const { prevResult } = config;
  if (prevResult === undefined) return [];
  const ours = prevResult.interfaces.find(
    ({ name, sandbox }) => name === ifName && sandbox !== undefined,
  );
  // A later plugin may have given the link another MAC without a word to the runtime.
  const macs: string[] = [mac, later?.mac ?? mac];
  if (awaitsPlugins === true && ours?.mac !== undefined) macs.push(ours.mac.toLowerCase());
  const reported = new Set<string>(prevResult.ips.map(({ address }) => address));
  return [
    ...(ours === undefined && prevResult.interfaces.length > 0
      ? [`prevResult has no interface "${ifName}"`]
      : []),
    ...(ours?.sandbox === undefined || ours.sandbox === netns
      ? []
      : [`prevResult has "${ifName}" in ${ours.sandbox}, not in ${netns}`]),
    ...(ours?.mac === undefined || macs.includes(ours.mac.toLowerCase())
      ? []
      : [`prevResult has MAC ${ours.mac}, not ${macs.join(" or ")}`]),
    ...addresses.flatMap((address) =>
      reported.has(address) ? [] : [`prevResult lacks ${address}`],
    ),
  ];
}

/** Parts that later plugins change without a word in their results. */
const unreported: readonly InsidePart[] = [
  "mtu",
  "setting accept_ra",
  "setting autoconf",
  "setting disable_ipv6",
];

/**
 * What a CHECK compares the container with. Until podnetd has observed what later plugins changed,
 * their changes are taken from the runtime: the last MAC that it got, and the routes. Pure.
 */
export function fragmentAsReported(
  fragment: AttachmentFragment,
  { config: { prevResult } }: AddRequest,
): AttachmentFragment {
  if (fragment.awaitsPlugins !== true || prevResult === undefined) return fragment;
  const { awaitsPlugins: _awaits, ...whole } = fragment;
  const ours = prevResult.interfaces.find(
    ({ name, sandbox }) => name === fragment.guestLink && sandbox !== undefined,
  );
  const reported = new Set<string>(prevResult.routes.map(({ dst }) => dst));
  const gone = fragment.routes.filter(({ destination }) => !reported.has(destination)).map(partOf);
  return {
    ...whole,
    later: { mac: macOf(ours?.mac) ?? fragment.mac, left: [...unreported, ...gone] },
  };
}

/** The runtime's MAC, if it is valid. */
const macOf = (text = ""): Mac | undefined =>
  /^(?:[\da-f]{2}:){5}[\da-f]{2}$/i.test(text) ? parseMac(text) : undefined;
