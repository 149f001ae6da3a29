// The plugin itself, and others after it, on one podnetd: as test/vm/together-pods.test.ts.

import "./plugin-numbers.test.ts";
import "./plugin-versions.test.ts";
// Last: plugins of others leave their chains.
import "./chain.test.ts";
