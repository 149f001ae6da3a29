import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { Image, ImageProgress } from "../../api/gen/podnet/v1/image_service_pb.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { progressStream } from "../api/images/progress-stream.ts";
import { credentialOf, type SentAuth } from "../images/call-credential.ts";
import type { StoredImageRow } from "../images/images.ts";
import { callerKey } from "../listeners/callers.ts";
import { type Answer, env } from "./answers.ts";
import { imageFilter } from "./requests/image-filter.ts";
import { type Asking, type Call, parameter, type Route } from "./routes.ts";

/** Images of podnet's own store. */
export const imageCalls = (parts: ServiceParts): readonly Route[] => [
  {
    method: "GET",
    path: "/images/get",
    parameters: ["all", "quiet", "filter", "filters"],
    role: "viewer",
    answer(call) {
      const [filter, filters] = [parameter(call, "filter"), parameter(call, "filters")];
      const isWanted = imageFilter({ filter, filters }, "filters");
      return env({ imagesList: parts.images.list().filter(isWanted).flatMap(imageLines) });
    },
  },
  {
    method: "POST",
    path: "/image/create",
    parameters: ["imageName", "tag"],
    role: "operator",
    answer: (call) => pull(call, parts),
  },
  {
    method: "POST",
    path: "/image/load",
    parameters: ["name", "refs"],
    role: "operator",
    answer: (call) => load(call, parts),
  },
  {
    method: "DELETE",
    path: "/image",
    parameters: ["imageId", "force", "noprune"],
    role: "operator",
    answer(call) {
      const reference = parameter(call, "imageId");
      if (reference.trim() === "")
        throw new PodnetError("INVALID_ARGUMENT", "image name cannot be blank", {
          field: "imageId",
          hint: "Give a name or an id",
        });
      return env({ imagesList: removeImage(reference, call.context, parts) });
    },
  },
];

/** A line for each name, or one for an image without any, as colons divide them. */
function imageLines({ names, digest, createdMs, bytes }: StoredImageRow): readonly string[] {
  const rest = [imageId(digest), String(Math.floor(createdMs / 1000)), String(bytes)];
  const tagged = names.filter((name) => !name.includes("@"));
  if (tagged.length > 0) return tagged.map((name) => [shortName(name), ...rest].join(":"));
  const [repository = "<none>"] = (names[0] ?? "").split("@");
  return [[shortName(repository), "<none>", ...rest].join(":")];
}

export const imageId = (digest: string): string => digest.replace("sha256:", "");
/** Without the registry that docker leaves out. */
export const shortName = (name: string): string => name.replace(/^docker\.io\/(?:library\/)?/, "");

/** As docker does it: of several names one goes, and with the last one the image. */
export function removeImage(reference: string, context: Asking, { images, log }: ServiceParts) {
  note({ log }, context, `remove image ${printable(reference)}`);
  const found = images.findImage(reference);
  const byId = found.digest.startsWith(reference) || imageId(found.digest).startsWith(reference);
  if (!byId && found.names.length > 1 && images.untag(reference))
    return [{ untaged: reference, deleted: "" }];
  const { digest, names } = images.remove(found.digest);
  return [
    ...names.map((name) => ({ untaged: shortName(name), deleted: "" })),
    { untaged: "", deleted: digest },
  ];
}

function pull(call: Call, parts: ServiceParts): Answer {
  const asked = {
    image: parameter(call, "imageName"),
    tag: parameter(call, "tag"),
    auth: authOf(call.header("x-registry-auth")),
  };
  const body = pullImage(asked, call.context, parts);
  return { status: 200, type: "application/json", body };
}

export interface AskedPull {
  readonly image: string;
  readonly tag: string;
  readonly auth?: SentAuth | undefined;
}

/** Pulls an image; answers messages of JSON, as docker's clients show them. */
export function pullImage(
  { image, tag, auth }: AskedPull,
  context: Asking,
  parts: ServiceParts,
): AsyncIterable<Uint8Array> {
  const name = image.replace(/:$/, "");
  if (name === "")
    throw new PodnetError("UNSUPPORTED", "podnet does not import images by hyperctl", {
      field: "imageName",
      hint: "Import an archive: podnet image import",
    });
  const reference = `${name}${tag === "" ? "" : tag.startsWith("sha256:") ? `@${tag}` : `:${tag}`}`;
  const mayPullFromAll = context.values.get(callerKey)?.role === "admin";
  const credential = credentialOf(auth, reference, parts.config.images.registries[0]);
  const options = { policy: "always", mayPullFromAll, credential } as const;
  note(parts, context, `pull image ${printable(reference)}`);
  const progress = progressStream(
    (report, signal) => parts.imageJobs.pull(reference, options, report, signal),
    context.signal,
  );
  return messages(progress, {
    first: `Pulling ${printable(reference)}`,
    last: () => `Status: Downloaded image for ${printable(reference)}`,
  });
}

/** Imports an archive, as docker save writes it, under its own names or the one that is given. */
function load(call: Call, parts: ServiceParts): Answer {
  if (!["", "{}", "null"].includes(parameter(call, "refs")))
    throw new PodnetError("UNSUPPORTED", "podnet does not choose among the images of an archive", {
      field: "refs",
      hint: "Import the one that is wanted: podnet image import --image",
    });
  const name = parameter(call, "name");
  note(parts, call.context, `import image ${printable(name)}`);
  const progress = progressStream(
    (report, signal) =>
      parts.imageJobs.import({ upload: call.upload() }, { name, choose: "" }, report, signal),
    call.context.signal,
  );
  const body = messages(progress, {
    first: "Loading",
    last: ({ names: [first], digest }) => `Loaded image: ${shortName(first ?? digest)}`,
  });
  return { status: 200, type: "application/json", body };
}

const message = (value: object): Uint8Array => Buffer.from(`${JSON.stringify(value)}\r\n`);

interface Words {
  readonly first: string;
  readonly last: (image: Image) => string;
}

/**
 * Work on an image as docker's clients show it. An error is the last message, after the status was
 * sent.
 */
async function* messages(
  progress: AsyncIterable<ImageProgress>,
  { first, last }: Words,
): AsyncGenerator<Uint8Array> {
  yield message({ status: first });
  let made: Image | undefined;
  try {
    for await (const { stage, bytes, totalBytes, image } of progress) {
      made = image ?? made;
      yield message(
        image === undefined
          ? {
              status: stage,
              id: "image",
              progressDetail: { current: Number(bytes), total: Number(totalBytes) },
            }
          : { status: `Digest: ${image.digest}` },
      );
    }
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const text = `${error.message} (${error.code})`;
    yield message({ errorDetail: { message: text }, error: text });
    return;
  }
  if (made !== undefined) yield message({ status: last(made) });
}

/** hyperctl sends what it has of credentials, which may be nothing, as JSON in base64. */
function authOf(header: string): SentAuth | undefined {
  if (header === "") return undefined;
  let given: unknown;
  try {
    given = JSON.parse(Buffer.from(header, "base64url").toString("utf8"));
  } catch {
    // The text stays out of the error: it may be a password.
    throw new PodnetError("INVALID_ARGUMENT", "The credentials are no JSON in base64", {
      field: "X-Registry-Auth",
      hint: 'Send {"username":"…","password":"…"} in base64',
    });
  }
  const textOf = (key: string): string => {
    const value = (Object(given) as Readonly<Record<string, unknown>>)[key] ?? "";
    if (typeof value === "string") return value;
    throw new PodnetError("INVALID_ARGUMENT", `"${key}" of the credentials is no text`, {
      field: "X-Registry-Auth",
      hint: 'Send {"username":"…","password":"…"} in base64',
    });
  };
  return {
    auth: textOf("auth"),
    username: textOf("username"),
    password: textOf("password"),
    serverAddress: textOf("serveraddress"),
    identityToken: textOf("identitytoken"),
    registryToken: textOf("registrytoken"),
  };
}
