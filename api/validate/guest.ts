import { encodeUtf8 } from "../../core/utf8.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { BootSpec } from "../pod-spec.ts";
import { invalid } from "../fields.ts";

const agents = ["hyperstart", "none"] as const;

/** Bytes of user data: cloud-init itself knows no limit, the clouds have 16 to 64 KiB. */
const mostUserData = 65_536;

/**
 * How user data begins that cloud-init does something with (its documentation, "User-data
 * formats").
 */
const known = /^(?:#|Content-Type:|MIME-Version:)/i;

/** Checks who configures the guest, and what cloud-init in it is given. */
export function validateGuest({
  agent,
  cloudInit,
}: wire.Boot): Pick<BootSpec, "agent" | "cloudInit"> {
  const who = agents.find((each) => each === agent);
  if (agent !== "" && who === undefined) {
    throw invalid(
      "boot.agent",
      `Agent "${printable(agent)}" is not known`,
      "Use hyperstart or none, or leave it out for podnet's own",
    );
  }
  return {
    ...(who === undefined ? {} : { agent: who }),
    ...(cloudInit === undefined ? {} : { cloudInit: validateCloudInit(cloudInit) }),
  };
}

function validateCloudInit({ userData }: wire.CloudInit): NonNullable<BootSpec["cloudInit"]> {
  const field = "boot.cloud_init.user_data";
  const bytes = encodeUtf8(userData).length;
  if (bytes > mostUserData)
    throw invalid(
      field,
      `${bytes} bytes of user data are too many`,
      `Give at most ${mostUserData}; let it fetch the rest`,
    );
  // Its text is only for the guest: no message quotes it.
  if (userData !== "" && (!known.test(userData) || userData.includes("\0")))
    throw invalid(
      field,
      "The user data is nothing that cloud-init would do",
      "Begin it with #cloud-config, or #! and a program; see cloud-init's documentation of its formats",
    );
  return { userData };
}

/** Refuses a clone of a machine whose guest is not known to be the same as another's. */
export function refuseClone({ agent, cloudInit, disks, factory, layer }: BootSpec): void {
  if (factory === undefined || factory === "cold") return;
  const writes = layer !== undefined || disks.some(({ readOnly }) => !readOnly);
  const why = writes
    ? "A machine with a disk that it may write to"
    : cloudInit !== undefined
      ? "A machine with a seed disk"
      : agent !== undefined
        ? "A guest without podnet's agent"
        : undefined;
  if (why === undefined) return;
  throw new PodnetError("UNSUPPORTED", `${why} cannot be cloned from a template`, {
    field: "boot.factory",
    hint: "Use factory cold for it, or leave it out",
  });
}
