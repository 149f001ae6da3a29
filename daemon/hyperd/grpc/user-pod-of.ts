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

/** A pod of a message, read as that of REST is. Throws `INVALID_ARGUMENT`. */
export function userPodOf(message: Message | undefined): UserPod {
  if (message === undefined)
    throw new PodnetError("INVALID_ARGUMENT", "The request has no pod", {
      field: "podSpec",
      hint: "Give podSpec",
    });
  return readGo(userPod, JSON.stringify(toJson(UserPodSchema, message)), "The pod");
}

/** A container of a message, as one of REST. Throws as `userPodOf`. */
export function userContainerOf(message: ContainerMessage | undefined): UserContainer {
  const json = message === undefined ? null : toJson(UserContainerSchema, message);
  return readGo(userContainer, JSON.stringify(json), "The container");
}

/** Services of a message, as those of REST. Throws as `userPodOf`. */
export function userServicesOf(messages: readonly ServiceMessage[]): UserService[] {
  const all = messages.map((each) => toJson(UserServiceSchema, each));
  return readGo(userServices, JSON.stringify(all), "services");
}
