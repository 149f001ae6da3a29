import type { HandlerContext } from "@connectrpc/connect";
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
  readonly context: Asking;
}

interface AnyRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Without the version. A part in braces may be anything. */
  readonly path: string;
  readonly role: Role;
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

/** A parameter's first value, as Go has it; empty when it is absent. */
export const parameter = ({ query }: Pick<Call, "query">, name: string): string =>
  query.get(name) ?? "";

/** A parameter that says yes, in one of hyperd's ways. */
export const saysYes = (call: Pick<Call, "query">, name: string): boolean =>
  ["yes", "true", "on", "1"].includes(parameter(call, name).toLowerCase());

/** A request's target: its path without the version, and its parameters. Pure. */
export function readTarget(target: string): {
  readonly path: string;
  readonly query: URLSearchParams;
} {
  const [path = "", ...query] = target.split("?");
  return {
    path: path.replace(/^\/v[0-9][0-9.]*(?=\/)/, ""),
    query: new URLSearchParams(query.join("?")),
  };
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
