import { type DescMessage, fromJson, type JsonValue, type MessageShape } from "@bufbuild/protobuf";

/** A message of what REST answers, which has fields that are always empty and no message has. */
export const messageOf = <Desc extends DescMessage>(desc: Desc, view: object): MessageShape<Desc> =>
  fromJson(desc, JSON.parse(JSON.stringify(view)) as JsonValue, { ignoreUnknownFields: true });
