import type { HandlerContext } from "@connectrpc/connect";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { Role } from "../../api/roles.ts";
import type { Answer } from "./answers.ts";
import type { Written } from "./stdcopy.ts";

/** Who asks, and until when. */
export type Asking = Pick<HandlerContext, "values" | "signal">;

/** A request whose caller may have it answered. */
export interface Call {
  readonly query: URLSearchParams;
  /** What stands in the path where the route has braces. */
  readonly open: readonly string[];
  header(name: string): string;
  /** The body. Throws `LIMIT_REACHED`. */
  body(): Promise<string>;
  /** The body as it comes, which may be long. */
  upload(): AsyncIterable<Uint8Array>;
  readonly context: Asking;
}

interface AnyRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Without the version. A part in braces may be anything. */
  readonly path: string;
  readonly role: Role;
  /** Names of its parameters, or that it is refused whatever it is given. */
  readonly parameters: readonly string[] | "refused";
}

/** A call with one answer. */
export interface Route extends AnyRoute {
  answer(call: Call): Answer | Promise<Answer>;
}

/** A program whose input and output are the connection's. */
export interface OpenStream {
  readonly terminal: boolean;
  /** Ends with the program. */
  readonly output: AsyncIterable<Written>;
  write(data: Uint8Array): Promise<void>;
  closeInput(): Promise<void>;
}

/** A call that takes over its connection. */
export interface StreamRoute extends AnyRoute {
  open(call: Call): Promise<OpenStream>;
}

/** A parameter's value by its name in any case; empty when it is absent. */
export const parameter = ({ query }: Pick<Call, "query">, name: string): string =>
  query.get(name.toLowerCase()) ?? "";

/** Throws `INVALID_ARGUMENT` for a parameter that would be passed over. */
export function refuseUnread(
  { query }: Pick<Call, "query">,
  { method, path, parameters }: Pick<AnyRoute, "method" | "path" | "parameters">,
): void {
  if (parameters === "refused") return;
  const known = new Set(parameters.map((each) => each.toLowerCase()));
  for (const name of new Set(query.keys())) {
    const times = query.getAll(name).length;
    if (known.has(name) && times === 1) continue;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      known.has(name)
        ? `Parameter ${printable(name)} is there ${times} times`
        : `${method} ${path} has no parameter ${printable(name)}`,
      {
        field: printable(name),
        hint: known.has(name)
          ? "Give it once"
          : parameters.length === 0
            ? "Leave it out"
            : `It has ${parameters.join(", ")}`,
      },
    );
  }
}

/** A parameter that says yes, in one of hyperd's ways. */
export const saysYes = (call: Pick<Call, "query">, name: string): boolean =>
  ["yes", "true", "on", "1"].includes(parameter(call, name).toLowerCase());

/**
 * A request's target: its path without the version, and its parameters, whose names are in lower
 * case: hyperctl itself writes podId and podID. Pure.
 */
export function readTarget(target: string): {
  readonly path: string;
  readonly query: URLSearchParams;
} {
  const [path = "", ...rest] = target.split("?");
  const query = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(rest.join("?")))
    query.append(name.toLowerCase(), value);
  return { path: path.replace(/^\/v[0-9][0-9.]*(?=\/)/, ""), query };
}

/** The route of a method and path, and what stands in its braces. Pure. */
export function findRoute<Any extends Pick<AnyRoute, "method" | "path">>(
  routes: readonly Any[],
  method: string,
  path: string,
): { readonly route: Any; readonly open: readonly string[] } | undefined {
  const parts = path.split("/");
  for (const route of routes) {
    const wanted = route.path.split("/");
    if (route.method !== method || wanted.length !== parts.length) continue;
    const open = parts.filter((_part, i) => wanted[i]?.startsWith("{") === true);
    const fits = wanted.every((each, i) => each.startsWith("{") || each === parts[i]);
    if (fits && open.every((part) => part !== "")) return { route, open };
  }
  return undefined;
}
