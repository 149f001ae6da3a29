import { useEffect, useRef, useState } from "preact/hooks";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { follow } from "./calls.ts";

/** Most text that is kept, characters. */
const most = 64 * 1024;

/**
 * What a guest prints is shown as text: its escape sequences are taken out, once they are whole.
 */
const plain = (text: string): string =>
  text
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-_])/g, "")
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");

/** A pod's serial console, to read. */
export function Console({ id }: { id: string }) {
  const [text, setText] = useState("");
  const [note, setNote] = useState("");
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const utf8 = new TextDecoder();
    const end = follow(
      PodService.method.console,
      { idOrName: id, tailBytes: 16_384 },
      {
        each: ({ data }) =>
          setText((before) => (before + utf8.decode(data, { stream: true })).slice(-most)),
        over: (error) => setNote(error === undefined ? "The machine ended" : error.message),
        lost: () => setText(""),
      },
    );
    return end;
  }, [id]);
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [text]);
  return (
    <>
      <pre ref={box} class="console" tabIndex={0} aria-label="Console">
        {plain(text)}
      </pre>
      {note === "" ? null : <p class="muted">{note}</p>}
    </>
  );
}
