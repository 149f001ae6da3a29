/**
 * The part of qemu-qmp 0.5.0 that `vm-source.ts` uses; the package comes without types: a
 * net.Socket with two methods changed.
 */
declare module "qemu-qmp" {
  class QMP {
    connect(path: string, callback: (error: Error | null) => void): void;
    execute(
      command: string,
      args: object | null,
      callback: (error: Error | null, value: unknown) => void,
    ): void;
    on(event: "error", listener: (error: Error) => void): this;
    on(event: "close", listener: () => void): this;
    removeAllListeners(event: string): this;
    end(): void;
  }
  export = QMP;
}
