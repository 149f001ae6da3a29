import type { Ip } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";

/** The holder of a requested value, as messages name it. */
export const ownOther = "another interface of this pod";

/** Refuses an address that a pod or container holds. */
export const addressHeld = (ip: Ip, holder: string, field: string): PodnetError =>
  new PodnetError("ADDRESS_IN_USE", `Address ${ip} is held by ${holder}`, {
    field,
    hint: "Ask for another address, or for none",
    details: { holder },
  });
