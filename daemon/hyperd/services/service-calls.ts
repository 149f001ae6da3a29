import { done, json } from "../answers.ts";
import { type KnownPods } from "../known-pods.ts";
import { idOf } from "../pod-ids.ts";
import { readGo } from "../requests/go-json.ts";
import { userServices } from "../requests/user-service.ts";
import { type Call, parameter, type Route } from "../routes.ts";
import type { PodServices } from "./pod-services.ts";

/** Services of pods, which are podnet's services. */
export function serviceCalls(known: KnownPods, services: PodServices): readonly Route[] {
  const change = (
    method: Route["method"],
    path: string,
    verb: "add" | "update" | "delete",
  ): Route => ({
    method,
    path,
    parameters: ["podId", "services"],
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"));
      await services[verb](row, await askedOf(call), call.context);
      return done(idOf(row));
    },
  });
  return [
    {
      method: "GET",
      path: "/service/list",
      parameters: ["podId"],
      role: "viewer",
      answer: (call) => json(services.list(known.find(parameter(call, "podId")))),
    },
    change("POST", "/service/add", "add"),
    change("POST", "/service/update", "update"),
    change("DELETE", "/service", "delete"),
  ];
}

/** The services stand in the query. */
const askedOf = async (call: Call) => {
  // Read, although it means nothing: its caller would see its connection cut.
  await call.body();
  return readGo(userServices, parameter(call, "services"), "services");
};
