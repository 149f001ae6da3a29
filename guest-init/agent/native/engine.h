/*
 * The interface of native code to the JavaScript engine: a program to run, and calls with arguments
 * in and one number out.
 */
#ifndef PODNET_ENGINE_H
#define PODNET_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/*
 * The arguments of one call from JavaScript. Pointers obtained from it are valid until the call
 * returns.
 */
struct call {
  uint32_t argc;
  uint32_t argv;
};

struct bytes {
  uint8_t *data;
  uint32_t length;
};

/* A number; 0 when absent. */
double arg_number(struct call *call, uint32_t index);
int arg_int(struct call *call, uint32_t index);
/*
 * Text as UTF-8 with a terminating NUL; "" when absent. Text that is too long for a path stays too
 * long for one.
 */
const char *arg_text(struct call *call, uint32_t index);
/* The memory of a typed array, in place: what is written there is what JavaScript sees. */
struct bytes arg_bytes(struct call *call, uint32_t index);

/* A call answers a number; failures are the negative errno. */
typedef double (*native_function)(struct call *);
struct native {
  const char *name;
  native_function function;
};
/* Both end with a null name. */
extern const struct native sys_functions[];
extern const struct native process_functions[];

/* How the program calls itself in what it reports. */
extern const char program_name[];

/*
 * Starts the engine and runs a program's bytecode. Its global object, or 0 when that failed and is
 * reported.
 */
uint32_t start_engine(const uint8_t *bytecode, uint32_t length);
/* A function that the program left in its global object. */
uint32_t function_named(uint32_t global, const char *name);
/*
 * Calls it without arguments, then runs the promise jobs. 0 when something was thrown, which is
 * reported.
 */
int call_function(uint32_t function);

/* argv of the program itself, for sys.args(). */
extern int program_argc;
extern char **program_argv;

/* -errno after a call that returns -1. */
double or_errno(long result);
/* The time of a clock, in milliseconds. */
double milliseconds(clockid_t clock);

#endif
