// What pods are good for, one file after the other on one podnetd (joinRig): alone each costs a
// start of podnetd and a boot of a template more. Each runs alone, too: scripts/ava
// test/vm/FILE.test.ts. scripts/test.ts leaves out what stands here.

import "./daemon-console.test.ts";
import "./daemon-copy.test.ts";
import "./daemon-logs.test.ts";
import "./interfaces-churn.test.ts";
import "./interfaces-many.test.ts";
import "./interfaces-queues.test.ts";
import "./data-disks.test.ts";
import "./daemon-uninterrupted.test.ts";
import "./interfaces.test.ts";
// Last: its host restarts, and podnet goes down.
import "./daemon-guests.test.ts";
