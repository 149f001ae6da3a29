import { toJson } from "@bufbuild/protobuf";
import { PodnetError } from "../../../core/errors.ts";
import {
  type UserContainer as ContainerMessage,
  type UserPod as Message,
  UserContainerSchema,
  UserPodSchema,
  type UserService as ServiceMessage,
  UserServiceSchema,
} from "../gen/hyperd_pb.ts";
import { readGo } from "../requests/go-json.ts";
import { type UserContainer, userContainer, type UserPod, userPod } from "../requests/user-pod.ts";
import { type UserService, userServices } from "../requests/user-service.ts";

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
  refuseUnknown(message, "podSpec", "the pod");
  return readGo(userPod, JSON.stringify(toJson(UserPodSchema, message)), "The pod");
}

/** A container of a message, as one of REST. Throws as `userPodOf`. */
export function userContainerOf(message: ContainerMessage | undefined): UserContainer {
  refuseUnknown(message, "containerSpec", "the container");
  const json = message === undefined ? null : toJson(UserContainerSchema, message);
  return readGo(userContainer, JSON.stringify(json), "The container");
}

/** Services of a message, as those of REST. Throws as `userPodOf`. */
export function userServicesOf(messages: readonly ServiceMessage[]): UserService[] {
  refuseUnknown(messages, "services", "a service");
  const all = messages.map((each) => toJson(UserServiceSchema, each));
  return readGo(userServices, JSON.stringify(all), "services");
}

function refuseUnknown(message: unknown, field: string, what: string): void {
  const number = unknownField(message);
  if (number !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `podnet does not know field ${number} of ${what}`, {
      field,
      hint: "See daemon/hyperd/proto/hyperd.proto for the fields that it reads",
    });
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
