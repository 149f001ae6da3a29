/**
 * A collector of OpenTelemetry, played, for neither Debian nor npm has one. It takes OTLP's JSON
 * by HTTP, and validates every span: it refuses with 400 what opentelemetry-proto's
 * `ExportTraceServiceRequest` does not have, and what the comments there forbid. It prints each
 * request that it takes as one line of JSON; while a file exists it answers 503.
 *   scripts/node test/lab/collector.ts PORT [AWAY-FILE]
 */
import { existsSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import * as z from "zod";

const id = (digits: number) => z.string().regex(new RegExp(`^(?!0+$)[0-9a-f]{${digits}}$`));
const nanoseconds = z.string().regex(/^[1-9][0-9]{18}$/);
const attribute = z.strictObject({
  key: z.string().min(1),
  value: z.union([
    z.strictObject({ stringValue: z.string() }),
    z.strictObject({ boolValue: z.boolean() }),
    z.strictObject({ intValue: z.string().regex(/^-?[0-9]+$/) }),
    z.strictObject({ doubleValue: z.number() }),
  ]),
});
/** opentelemetry-proto: "Attribute keys MUST be unique". */
const attributes = z
  .array(attribute)
  .refine((all) => new Set(all.map(({ key }) => key)).size === all.length, "keys are not unique");
const spanFields = z.strictObject({
  traceId: id(32),
  spanId: id(16),
  parentSpanId: id(16).optional(),
  name: z.string().min(1),
  kind: z.int().min(1).max(5),
  startTimeUnixNano: nanoseconds,
  endTimeUnixNano: nanoseconds,
  attributes,
  status: z.strictObject({
    code: z.int().min(0).max(2).optional(),
    message: z.string().optional(),
  }),
});
const spanSchema = spanFields
  .refine(
    ({ startTimeUnixNano: start, endTimeUnixNano: end }) => BigInt(start) <= BigInt(end),
    "it ends before it starts",
  )
  .refine(({ spanId, parentSpanId }) => spanId !== parentSpanId, "it is its own parent");
const requestSchema = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes }),
      scopeSpans: z.array(
        z.strictObject({
          scope: z.strictObject({ name: z.string(), version: z.string() }),
          spans: z.array(spanSchema).min(1),
        }),
      ),
    }),
  ),
});

/** A span as it came, with the program that it is of. */
export type CollectedSpan = z.infer<typeof spanSchema> & { readonly service: string };

/** The spans of a line that the collector printed. */
export function spansOf(line: string): CollectedSpan[] {
  const { resourceSpans } = requestSchema.parse(JSON.parse(line));
  return resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const [name] = resource.attributes.filter(({ key }) => key === "service.name");
    const service = name !== undefined && "stringValue" in name.value ? name.value.stringValue : "";
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ ...span, service })));
  });
}

if (import.meta.main) {
  const [port = "4318", awayFile] = process.argv.slice(2);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const isRight =
      request.method === "POST" &&
      request.url === "/v1/traces" &&
      request.headers["content-type"] === "application/json";
    const body = await text(request);
    const away = awayFile !== undefined && existsSync(awayFile);
    let status = away ? 503 : 200;
    try {
      if (!isRight) throw new Error(`${request.method} ${request.url}`);
      requestSchema.parse(JSON.parse(body));
    } catch (thrown) {
      console.error(String(thrown));
      status = 400;
    }
    if (status === 200) console.log(body);
    response.writeHead(status, { "content-type": "application/json" }).end("{}");
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(Number(port), "127.0.0.1", () => console.log("ready"));
}
