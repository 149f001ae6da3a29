import type { MessageInitShape } from "@bufbuild/protobuf";
import type { GuestFileSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { invalid } from "../../../api/fields.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { UserContainer, UserFile } from "./user-pod.ts";

type Reference = UserContainer["files"][number];

const usualMode = 0o755;

/** The files of the container at a field, each with the pod's content of that name. Pure. */
export function filesOf(
  references: readonly Reference[],
  files: readonly UserFile[],
  of: string,
): MessageInitShape<typeof GuestFileSchema>[] {
  return references.map((reference, i) => {
    const field = `${of}.files[${i}]`;
    const file = reference.detail ?? files.find(({ name }) => name === reference.filename);
    if (file === undefined)
      throw invalid(
        `${field}.filename`,
        `The pod has no file "${printable(reference.filename)}"`,
        "Add it to files",
      );
    return {
      path: reference.path,
      content: contentOf(file),
      mode: modeOf(reference.perm, `${field}.perm`),
      uid: numberOf(reference.user, `${field}.user`),
      gid: numberOf(reference.group, `${field}.group`),
    };
  });
}

function contentOf({ name, encoding, uri, content }: UserFile): Uint8Array<ArrayBuffer> {
  const field = `files["${printable(name)}"]`;
  if (uri !== "")
    throw new PodnetError("UNSUPPORTED", "podnet does not fetch files from addresses", {
      field: `${field}.uri`,
      hint: "Give the content",
    });
  switch (encoding) {
    case "":
    case "raw":
      return new Uint8Array(Buffer.from(content));
    case "base64":
      if (/^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(content))
        return new Uint8Array(Buffer.from(content, "base64"));
      throw invalid(`${field}.content`, "The content is not base64", "Encode it so");
    default:
      throw invalid(
        `${field}.encoding`,
        `There is no encoding "${printable(encoding)}"`,
        "Use raw or base64",
      );
  }
}

function modeOf(perm: string, field: string): number {
  if (perm === "" || perm === "0") return perm === "" ? usualMode : 0;
  if (/^0[0-7]{3}$/.test(perm)) return Number.parseInt(perm, 8);
  throw invalid(field, `"${printable(perm)}" is not a mode`, "Write it as 0644");
}

/** An owner by its number: names are the guest's own, and not known here. */
function numberOf(owner: string, field: string): number {
  if (owner === "" || owner === "root") return 0;
  if (/^\d{1,9}$/.test(owner)) return Number(owner);
  throw new PodnetError("UNSUPPORTED", `podnet does not look "${printable(owner)}" up`, {
    field,
    hint: "Give its number in the image",
  });
}
