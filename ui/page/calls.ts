/** Calls of the API through the server of the page: see ui/server/serve-page.ts. */
import {
  create,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescMessage,
  fromJson,
  type JsonValue,
  type MessageInitShape,
  type MessageShape,
  toJson,
} from "@bufbuild/protobuf";
import { base } from "./base.ts";
import { ErrorInfoSchema } from "../../api/gen/podnet/v1/error_pb.ts";

/** A failed call, with what to do about it. */
export class CallError extends Error {
  readonly code: string;
  readonly hint: string;

  constructor({ code, message, hint }: { code: string; message: string; hint: string }) {
    super(message);
    this.code = code;
    this.hint = hint;
  }
}

/** A later podnetd may say more than this page knows. */
const lenient = { ignoreUnknownFields: true };

const pathOf = ({ parent, name }: { parent: { typeName: string }; name: string }): string =>
  `${base}${parent.typeName}/${name}`;

const errorOf = (json: JsonValue): CallError =>
  new CallError(fromJson(ErrorInfoSchema, json, lenient));

/** Makes a call that answers once. Rejects with `CallError`. */
export async function call<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Promise<MessageShape<O>> {
  const response = await fetch(pathOf(method), {
    method: "POST",
    body: JSON.stringify(toJson(method.input, create(method.input, request))),
  });
  const isJson = response.headers.get("content-type") === "application/json";
  if (!isJson)
    throw new CallError({
      code: `HTTP ${response.status}`,
      message: await response.text(),
      hint: "Run podnet ui again",
    });
  const answer = (await response.json()) as JsonValue;
  if (!response.ok) throw errorOf(answer);
  return fromJson(method.output, answer, lenient);
}

export interface Streaming<O extends DescMessage> {
  each(answer: MessageShape<O>): void;
  /** The stream is over: by its end, or with an error. The browser tries a lost one again. */
  over?(error?: CallError): void;
  /** The connection was lost; it is made again, and the stream begins anew. */
  lost?(): void;
}

/** Makes a call that answers again and again. Returns what ends it. */
export function follow<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  { each, over, lost }: Streaming<O>,
): () => void {
  const asked = JSON.stringify(toJson(method.input, create(method.input, request)));
  const source = new EventSource(`${pathOf(method)}?request=${encodeURIComponent(asked)}`);
  const json = ({ data }: MessageEvent<string>): JsonValue => JSON.parse(data) as JsonValue;
  source.addEventListener("message", (event: MessageEvent<string>) =>
    each(fromJson(method.output, json(event), lenient)),
  );
  source.addEventListener("end", () => {
    source.close();
    over?.();
  });
  source.addEventListener("failure", (event) => {
    source.close();
    over?.(errorOf(json(event as MessageEvent<string>)));
  });
  source.addEventListener("error", () => lost?.());
  return () => source.close();
}
