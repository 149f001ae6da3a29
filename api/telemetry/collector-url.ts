import { PodnetError } from "../../core/errors.ts";

/**
 * The URL to which spans are sent, of a collector's base URL as OpenTelemetry's programs take it
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`): `/v1/traces` is put behind its path. Throws `INVALID_ARGUMENT`.
 */
export function tracesUrl(endpoint: string): URL {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol))
    throw new PodnetError("INVALID_ARGUMENT", "It is no http:// or https:// URL", {
      hint: "Write the base URL of a collector that takes OTLP by HTTP, such as http://127.0.0.1:4318",
    });
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw new PodnetError("INVALID_ARGUMENT", "It has a user, a query or a fragment", {
      hint: "Write scheme, host, port and path alone, such as http://127.0.0.1:4318",
    });
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`;
  return url;
}
