/** What a program writes: output or errors. */
export interface Written {
  readonly kind: "stdout" | "stderr";
  readonly data: Uint8Array;
}

const kinds = { stdout: 1, stderr: 2 } as const;

/** A piece of output behind its kind and length, as docker's stdcopy has it. Pure. */
function frame({ kind, data }: Written): Buffer {
  const head = Buffer.alloc(8);
  head[0] = kinds[kind];
  head.writeUInt32BE(data.length, 4);
  return Buffer.concat([head, data]);
}

/** How a piece is sent: on a terminal as it is, output and errors are one there. */
export const encoded = (written: Written, terminal: boolean): Uint8Array =>
  terminal ? written.data : frame(written);
