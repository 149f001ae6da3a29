// What machines are shut in with, and their disks, one file after the other on one podnetd: as
// together-pods.test.ts.

import "./jail-pods.test.ts";
import "./disks.test.ts";
import "./root-disk.test.ts";
import "./files.test.ts";
import "./main-process.test.ts";
import "./writable-layer.test.ts";
import "./systemd-process.test.ts";
import "./jail-upgrade.test.ts";
import "./jail-crash.test.ts";
// Last: it ends podnetd.
import "./daemon-clients.test.ts";
