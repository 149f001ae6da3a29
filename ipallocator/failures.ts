import type { Cidr, Ip } from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import type { Owner } from "./owner.ts";

export const leaseLimitReached = (network: Cidr, limit: number): PodnetError =>
  new PodnetError("POOL_EXHAUSTED", `The pool of ${network} keeps ${limit} leases, and has them`, {
    hint: "Delete a pod; the limit keeps a very large network from filling the memory",
    details: { network, limit },
  });

export const inUse = (ip: Ip, holder: Owner, field?: string): PodnetError =>
  new PodnetError(
    "ADDRESS_IN_USE",
    `Address ${ip} is taken by ${holder.kind} "${printable(holder.id)}"`,
    {
      hint: `Choose another address, or release it by deleting that ${holder.kind}`,
      details: { address: ip, holderKind: holder.kind, holderId: holder.id },
      ...(field === undefined ? {} : { field }),
    },
  );

export const outOfRange = (ip: Ip, network: Cidr): PodnetError =>
  new PodnetError("ADDRESS_OUT_OF_RANGE", `Address ${ip} is not in the network ${network}`, {
    hint: `Choose an address of ${network}, or leave it out to get the next free one`,
    details: { address: ip, network },
  });

export const reserved = (ip: Ip, reason: string): PodnetError =>
  new PodnetError("ADDRESS_RESERVED", `Address ${ip} is reserved: ${printable(reason)}`, {
    hint: "Choose another address, or leave it out to get the next free one",
    details: { address: ip, reason },
  });

export const notAllocated = (ip: Ip, state: string): PodnetError =>
  new PodnetError("ADDRESS_NOT_ALLOCATED", `Address ${ip} is ${state} and not allocated`, {
    hint: "Nothing to release; `podnet get` shows which addresses a pod holds",
    details: { address: ip, state },
  });

export const rangeBackwards = (first: Ip, last: Ip): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `Range ${first} to ${last} runs backwards`, {
    hint: "Write the lower address first",
    details: { first, last },
  });

/** Refuses what is no whole number from 0 on. Throws `INVALID_ARGUMENT`. */
export function wholeNumber(value: number, field: string): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new PodnetError("INVALID_ARGUMENT", `Value ${value} is no whole number of at least 0`, {
    field,
    hint: "Write a whole number such as 60000",
  });
}
