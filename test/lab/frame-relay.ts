// Moves frames between two taps, its descriptors 3 and 4, as a machine would between its NIC and
// what is in it.
import { read, write } from "node:fs";

function move(from: number, to: number): void {
  const buffer = Buffer.alloc(65_600);
  read(from, buffer, 0, buffer.length, null, (error, size) => {
    if (error !== null) return;
    write(to, buffer, 0, size, null, () => move(from, to));
  });
}

move(3, 4);
move(4, 3);
