// What podnetd makes of stand-ins, one file after the other on one podnetd, as in
// together-pods.test.ts.

import "./standin-boot-failed.test.ts";
import "./standin-cannot.test.ts";
import "./standin-floods.test.ts";
import "./standin-hyperstart.test.ts";
import "./standin-interfaces.test.ts";
import "./standin-killed.test.ts";
import "./standin-restarts.test.ts";
import "./standin-services.test.ts";
// Last: it takes podnet down.
import "./standin-disks.test.ts";
