/*
 * The agent's life: JavaScript offers one function, podnetTick, which waits for events and handles
 * them; promise jobs run after it.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bytecode.h"
#include "engine.h"
#include "helper.h"
#include "wasm-rt-impl.h"

const char program_name[] = "podnet-guest";

/*
 * A trap is a defect of the engine, or its memory or stack used up. The image is replaced by a
 * fresh one, which says READY again: PID 1 must not end. Without /proc the kernel's panic=1 is the
 * way out.
 */
static void start_over(int trap) {
  dprintf(2, "podnet-guest: %s; starting over\n", wasm_rt_strerror(trap));
  usleep(200000);
  execv("/proc/self/exe", program_argv);
  _exit(70);
}

/*
 * As PID 1 the agent is not interrupted by those it wakes: each time it takes output, the process
 * that waits for room would have the processor for a page or two. Its children begin with the usual
 * priority.
 */
static void precede_others(void) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } wanted = {.size = sizeof wanted, .policy = SCHED_OTHER, .flags = 1 /* SCHED_FLAG_RESET_ON_FORK */, .nice = -20};
  if (getpid() == 1) syscall(SYS_sched_setattr, 0, &wanted, 0);
}

int main(int argc, char **argv) {
  program_argc = argc;
  program_argv = argv;
  int helped = run_helper(argc, argv);
  if (helped >= 0) return helped;
  precede_others();
  int trap = wasm_rt_impl_try();
  if (trap) start_over(trap);
  uint32_t global = start_engine(program_bytecode, sizeof program_bytecode);
  if (!global) return 70;
  uint32_t tick = function_named(global, "podnetTick");
  /* A tick that fails each time must not eat the processor. */
  for (;;)
    if (!call_function(tick)) usleep(20000);
}
