import type { AttachmentPlan } from "./attachment-plan.ts";
import type { AddRequest } from "./wishes.ts";

/** What the runtime's memory of an attachment says otherwise than its row, a line each. Pure. */
export function compareResult(
  { ifName, addresses, mac }: AttachmentPlan,
  { config, netns }: AddRequest,
): string[] {
  const { prevResult } = config;
  if (prevResult === undefined) return [];
  const ours = prevResult.interfaces.find(
    ({ name, sandbox }) => name === ifName && sandbox !== undefined,
  );
  const told = new Set<string>(prevResult.ips.map(({ address }) => address));
  return [
    ...(ours === undefined && prevResult.interfaces.length > 0
      ? [`prevResult has no interface "${ifName}"`]
      : []),
    ...(ours?.sandbox === undefined || ours.sandbox === netns
      ? []
      : [`prevResult has "${ifName}" in ${ours.sandbox}, not in ${netns}`]),
    ...(ours?.mac === undefined || ours.mac.toLowerCase() === mac
      ? []
      : [`prevResult has MAC ${ours.mac}, not ${mac}`]),
    ...addresses.flatMap((address) => (told.has(address) ? [] : [`prevResult lacks ${address}`])),
  ];
}
