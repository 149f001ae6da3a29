import { toJson } from "@bufbuild/protobuf";
import { PodnetError } from "../../../core/errors.ts";
import { type UserPod as Message, UserPodSchema } from "../gen/hyperd_pb.ts";
import { readGo } from "../requests/go-json.ts";
import { type UserPod, userPod } from "../requests/user-pod.ts";

/**
 * A pod of a message, read as that of REST is. Throws `INVALID_ARGUMENT` for a field by a number
 * that podnet does not know, which would be passed over otherwise.
 */
export function userPodOf(message: Message | undefined): UserPod {
  if (message === undefined)
    throw new PodnetError("INVALID_ARGUMENT", "The request has no pod", {
      field: "podSpec",
      hint: "Give podSpec",
    });
  const number = unknownField(message);
  if (number !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `podnet does not know field ${number} of the pod`, {
      field: "podSpec",
      hint: "See daemon/hyperd/proto/hyperd.proto for the fields that it reads",
    });
  return readGo(userPod, JSON.stringify(toJson(UserPodSchema, message)), "The pod");
}

/** The number of the first unknown field of a message, or of one within it. */
function unknownField(value: unknown): number | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { $unknown: [first] = [] } = value as { readonly $unknown?: readonly { no: number }[] };
  if (first !== undefined) return first.no;
  for (const each of Object.values(value)) {
    const found = unknownField(each);
    if (found !== undefined) return found;
  }
  return undefined;
}
