import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type Overlay,
  OverlayPhase,
  OverlaySchema,
  type Reservation,
  ReservationSchema,
} from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { addOverlayOption, type OverlayOptions } from "../flags/overlay-option.ts";
import { collect } from "../parse.ts";
import { lower } from "../views/pod-view.ts";
import { tunnelText } from "../views/overlay-text.ts";
import { age, columns, harmless, table } from "../views/text.ts";

type Options = OutputOptions & OverlayOptions;

/** The commands about the networks over many hosts that this one is in. */
export function addOverlay(program: Command, context: Context): void {
  const group = program
    .command("overlay")
    .alias("overlays")
    .description("networks over many hosts: how they are, leave, join, keep subnets for hosts");
  addList(group, context);
  addLeave(group, context);
  addJoin(group, context);
  addDiff(group, context);
  addReservations(group, context);
  addReserve(group, context);
  addUnreserve(group, context);
}

function addList(group: Command, context: Context): void {
  const list = group.command("list", { isDefault: true });
  addOutput(list.description("list overlays, and this host's part in each")).action(
    async (options: OutputOptions) => {
      const { io } = context;
      const { overlays, troubles } = await withPodnet(context, options, (podnet, signal) =>
        podnet.overlays.list({}, { signal }),
      );
      if (options.output !== "table") {
        const items = overlays.map((overlay) => toPlain(OverlaySchema, overlay));
        const more = troubles.length === 0 ? {} : { troubles: [...troubles] };
        await printDocument(io, options.output, document("OverlayList", { ...more, items }));
        return;
      }
      if (overlays.length > 0) io.stdout.write(overlayTable(overlays, Date.now()));
      for (const trouble of troubles) io.stdout.write(`${harmless(trouble)}\n`);
      if (overlays.length + troubles.length === 0)
        io.stderr.write(
          "This host is in no overlay: see overlay.etcd.endpoints and overlay.subnet_manager\n",
        );
    },
  );
}

function overlayTable(overlays: readonly Overlay[], now: number): string {
  const heading = "NAME PHASE NETWORK RANGE SUBNET BACKEND MTU PUBLIC-IP HOSTS LEASE MANAGER";
  const rows = overlays.map((each) => [
    each.name,
    lower(OverlayPhase, each.phase),
    each.network,
    each.networks.join(",") || "-",
    each.subnets.join(",") || "-",
    each.backend || "-",
    each.mtu === 0 ? "-" : `${each.mtu}`,
    each.publicIps.join(",") || "-",
    `${each.peers}`,
    each.reserved
      ? "reserved"
      : each.expiresAt === undefined
        ? "-"
        : `${age(timestampMs(each.expiresAt) - now)} left`,
    each.staleMs === undefined
      ? harmless(each.subnetManager)
      : `${harmless(each.subnetManager)}, away for ${age(Number(each.staleMs))}`,
  ]);
  const notes = overlays.flatMap(({ name, troubles, skippedKeys, tunnel }) => [
    ...troubles.map((trouble) => [`${name}:`, harmless(trouble)]),
    ...(skippedKeys === 0
      ? []
      : [
          [
            `${name}:`,
            `${skippedKeys} ${skippedKeys === 1 ? "lease is" : "leases are"} passed over`,
          ],
        ]),
    ...(tunnel === undefined ? [] : [[`${name}:`, harmless(tunnelText(tunnel))]]),
  ]);
  return `${table(heading.split(" "), rows)}${columns(notes)
    .map((line) => `${line}\n`)
    .join("")}`;
}

function addLeave(group: Command, context: Context): void {
  const command = group.command("leave").description("empty and give up this host's subnet");
  addOverlayOption(command)
    .addHelpText(
      "after",
      "\nReturns when the last pod on the subnet is gone. Stopping podnetd, or podnet down, does not\n" +
        "give up the subnet.",
    )
    .action(async (options: Options) => {
      const { overlay = "" } = options;
      await withPodnet(context, options, (podnet, signal) =>
        podnet.overlays.leave({ overlay }, { signal }),
      );
      context.io.stdout.write("Left\n");
    });
}

function addJoin(group: Command, context: Context): void {
  const command = group
    .command("join")
    .description("join again after leaving")
    .option(
      "--take-over",
      "take over a lease with this host's address, whose host no longer exists",
    );
  addOverlayOption(command).action(async (options: Options & { readonly takeOver?: boolean }) => {
    const { overlay = "", takeOver = false } = options;
    await withPodnet(context, options, (podnet, signal) =>
      podnet.overlays.join({ overlay, takeOver }, { signal }),
    );
    context.io.stdout.write("Joining: podnet overlay list shows how far it is\n");
  });
}

function addDiff(group: Command, context: Context): void {
  const command = group
    .command("diff")
    .description("compare the kernel with the plan for the other hosts");
  addOverlayOption(addOutput(command))
    .addHelpText("after", "\nExits with 1 on a difference.")
    .action(async (options: Options) => {
      const { io } = context;
      const { overlay = "", output } = options;
      const { lines } = await withPodnet(context, options, (podnet, signal) =>
        podnet.overlays.diff({ overlay }, { signal }),
      );
      if (lines.length > 0) context.exitCode = exitCodes.failed;
      if (output !== "table") await printDocument(io, output, document("OverlayDiff", { lines }));
      else io.stdout.write(lines.map((line) => `${harmless(line)}\n`).join("") || "As planned\n");
    });
}

function addReservations(group: Command, context: Context): void {
  const command = group
    .command("reservations")
    .description("list subnets that are reserved for hosts");
  addOverlayOption(addOutput(command)).action(async (options: Options) => {
    const { overlay = "" } = options;
    const { reservations } = await withPodnet(context, options, (podnet, signal) =>
      podnet.overlays.listReservations({ overlay }, { signal }),
    );
    await printReservations(context, options, reservations);
  });
}

async function printReservations(
  { io }: Context,
  { output }: OutputOptions,
  reservations: readonly Reservation[],
): Promise<void> {
  if (output !== "table") {
    const items = reservations.map((each) => toPlain(ReservationSchema, each));
    await printDocument(io, output, document("ReservationList", { items }));
    return;
  }
  const rows = reservations.map((each) => [each.subnets.join(","), each.publicIps.join(",")]);
  io.stdout.write(table(["SUBNET", "PUBLIC-IP"], rows));
}

interface ReserveOptions extends Options {
  readonly publicIp: readonly string[];
}

const reserveExamples = `
Examples:
  podnet overlay reserve 10.5.34.0/24 --public-ip 192.0.2.7
  podnet overlay reserve --public-ip 192.0.2.7          the subnet that host has already`;

function addReserve(group: Command, context: Context): void {
  const command = group.command("reserve").description("reserve a subnet for a host permanently");
  addOverlayOption(addOutput(command))
    .argument("[subnet...]", "one of each address family that the overlay has")
    .requiredOption(
      "--public-ip <address>",
      "the host's address; one of each address family that the overlay has",
      collect,
    )
    .addHelpText("after", reserveExamples)
    .action(async (subnets: string[], options: ReserveOptions) => {
      const { overlay = "", publicIp } = options;
      const request = { overlay, subnets, publicIps: [...publicIp] };
      const { reservation } = await withPodnet(context, options, (podnet, signal) =>
        podnet.overlays.addReservation(request, { signal }),
      );
      await printReservations(context, options, reservation === undefined ? [] : [reservation]);
    });
}

function addUnreserve(group: Command, context: Context): void {
  const command = group
    .command("unreserve")
    .description("end a reservation: the lease ends a day later unless its host renews it");
  addOverlayOption(command)
    .argument("<subnet...>", "as podnet overlay reservations shows it")
    .action(async (subnets: string[], options: Options) => {
      const { overlay = "" } = options;
      const { existed } = await withPodnet(context, options, (podnet, signal) =>
        podnet.overlays.removeReservation({ overlay, subnets }, { signal }),
      );
      const what = subnets.join(" and ");
      context.io.stdout.write(
        existed ? `No longer reserved: ${what}\n` : `${what} was not reserved\n`,
      );
    });
}
