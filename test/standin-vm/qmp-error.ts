/** A refusal in QEMU's own words (QEMU 7.2). */
export class QmpError extends Error {
  readonly errorClass: "GenericError" | "CommandNotFound" | "DeviceNotFound";

  constructor(description: string, errorClass: QmpError["errorClass"] = "GenericError") {
    super(description);
    this.errorClass = errorClass;
  }
}

export const noDevice = (name: string): QmpError =>
  new QmpError(`Device '${name}' not found`, "DeviceNotFound");
