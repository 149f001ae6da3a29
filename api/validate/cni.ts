import { type IfName, parseIfName } from "../../core/names.ts";
import { invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { CniSpec, InterfaceChoices, InterfaceSpec } from "../pod-spec.ts";
import { absolutePath } from "./disks.ts";

const maxArgs = 32;
const maxArgBytes = 1024;
const maxCapabilitiesBytes = 4096;

/** What every runtime calls the link of a sandbox. */
const usualLink = "eth0" as IfName;

/** Checks where a link of plugins comes from. Throws `INVALID_ARGUMENT` with the field. */
export function validateCni(cni: wire.CniInterface, field: string): CniSpec {
  const link = cni.link === "" ? usualLink : parseIfName(cni.link, `${field}.link`);
  if (cni.netns === "")
    return {
      link,
      ...(cni.list === "" ? {} : { list: listName(cni.list, `${field}.list`) }),
      args: validateArgs(cni.args, `${field}.args`),
      capabilities: parseCapabilities(cni.capabilities, `${field}.capabilities`),
    };
  const more = cni.list !== "" ? "list" : cni.capabilities !== "" ? "capabilities" : "args";
  if (more !== "args" || Object.keys(cni.args).length > 0)
    throw invalid(
      `${field}.${more}`,
      "No plugin is run for a foreign namespace",
      `Leave out ${more}, or netns`,
    );
  const netns = absolutePath(cni.netns, `${field}.netns`);
  return { link, netns, args: {}, capabilities: {} };
}

/** Plugins decide about such an interface; a name in the guest is all that is left to choose. */
export function cniInterface(
  cni: CniSpec,
  { guestName, ...others }: InterfaceChoices,
  port: unknown,
  field: string,
): InterfaceSpec {
  const [more] = [...Object.keys(others), ...(port === undefined ? [] : ["port"])];
  if (more !== undefined)
    throw invalid(
      `${field}.${more}`,
      "CNI plugins decide about it",
      "Leave it out; plugins are sent what they allow by cni.capabilities, such as ips and mac",
    );
  return { kind: "cni", cni, ...(guestName === undefined ? {} : { guestName }) };
}

/** Names are limited as CNI's own are. */
function listName(name: string, field: string): string {
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$/.test(name)) return name;
  throw invalid(
    field,
    "It is no name of a CNI network",
    "Use A-Z a-z 0-9 _ . - after a letter or digit, at most 128 characters",
  );
}

function validateArgs(args: Readonly<Record<string, string>>, field: string): CniSpec["args"] {
  const entries = Object.entries(args);
  if (entries.length > maxArgs)
    throw invalid(field, `${entries.length} entries are too many`, `Give at most ${maxArgs}`);
  for (const [name, value] of entries) {
    if (
      !/^[^;=\p{Cc}]+$/u.test(name) ||
      /[;\p{Cc}]/u.test(value) ||
      size(name, value) > maxArgBytes
    )
      throw invalid(
        field,
        "An argument has a sign that ends it, or is too long",
        `Leave = and ; out of names, ; and control characters out of values, and use at most ${maxArgBytes} characters`,
      );
  }
  return { ...args };
}

const size = (name: string, value: string): number => name.length + value.length;

function parseCapabilities(text: string, field: string): CniSpec["capabilities"] {
  if (text === "") return {};
  const hint = 'Give a JSON object, such as {"mac":"0a:58:0a:00:00:05"}';
  if (text.length > maxCapabilitiesBytes)
    throw invalid(field, `It has more than ${maxCapabilitiesBytes} bytes`, hint);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(field, "It is not JSON", hint);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw invalid(field, "It is no JSON object", hint);
  return value as CniSpec["capabilities"];
}
