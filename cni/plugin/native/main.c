/* podnet-cni: JavaScript leaves one function, podnetRun, which does it all and ends the process. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "frozen.h"
#include "wasm-rt-impl.h"
#ifdef PODNET_SEED
#include "bytecode.h"
#endif

const char program_name[] = "podnet-cni";

/* Where JavaScript cannot say it: the engine's memory or stack used up, or a defect. */
static int give_up(const char *why) {
  char text[256];
  int length = snprintf(text, sizeof text, "{\"code\":999,\"msg\":\"podnet-cni: %s\"}\n", why);
  return write(1, text, (size_t)length) == length ? 1 : 2;
}

int main(int argc, char **argv) {
  program_argc = argc;
  program_argv = argv;
  /* If the reader has closed our output, the write fails. */
  signal(SIGPIPE, SIG_IGN);
  int trap = wasm_rt_impl_try();
  if (trap) return give_up(wasm_rt_strerror(trap));
#ifdef PODNET_SEED
  if (argc != 3) return 2;
  uint32_t global = start_engine(program_bytecode, sizeof program_bytecode);
  return global && freeze(function_named(global, "podnetRun"), argv[1], argv[2]) ? 0 : 1;
#else
  uint32_t run = thaw();
  if (run) call_function(run);
  return give_up("it could not be run");
#endif
}
