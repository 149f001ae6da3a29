import type { OverlayDesired, OverlaySide } from "../../../network/model/overlay.ts";

/** The desired state of an overlay in the kernel, without rules, one line each. */
export const describeDesired = (desired: OverlayDesired): string[] =>
  desired.sides.flatMap((side) => [
    ...deviceLines(desired, side),
    ...side.peers.map(({ subnet, publicIp }) => `route ${subnet} to host ${publicIp}`),
  ]);

function deviceLines({ backend, parent }: OverlayDesired, side: OverlaySide): string[] {
  const { subnet, network, publicIp, vtep } = side;
  const part = `${subnet} of ${network}`;
  if (backend.kind !== "vxlan")
    return [`${part} by ${backend.kind}, reached at ${publicIp} on ${parent}`];
  const mac = vtep?.mac === undefined ? "" : ` mac ${vtep.mac}`;
  return [
    `link ${vtep?.device} vxlan id ${backend.vni} local ${publicIp} dev ${parent}${mac}, for ${part}`,
  ];
}
