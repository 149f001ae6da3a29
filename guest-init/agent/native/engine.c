/*
 * Hosts QuickJS-NG (quickjs.wasm of npm quickjs-wasi 3.6.2, turned into C by wasm2c 1.0.32) and
 * runs a program's bytecode: the agent's, and podnet-cni's (cni/plugin/native). The Z_ names are
 * those of wabt 1.0.32; scripts/script-program.ts pins both.
 *
 * Values cross the border as u32 pointers into the engine's linear memory.
 */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "inside.h"

Z_quickjs_instance_t engine;
int program_argc;
char **program_argv;

static uint8_t *at(uint32_t pointer) { return engine.w2c_memory.data + pointer; }

static uint32_t word(uint32_t pointer) {
  uint32_t value;
  memcpy(&value, at(pointer), sizeof value);
  return value;
}

/* Memory of the engine for out parameters and short texts; never freed. */
uint32_t scratch;

static uint32_t text_in(const char *text) {
  strncpy((char *)at(scratch + 64), text, 63);
  return scratch + 64;
}

/* --- arguments -------------------------------------------------------------------------------- */

static uint32_t arg(struct call *call, uint32_t index) {
  return index < call->argc ? word(call->argv + 4 * index) : 0;
}

double arg_number(struct call *call, uint32_t index) {
  uint32_t value = arg(call, index);
  return value ? Z_quickjsZ_qjs_get_float64(&engine, value) : 0;
}

int arg_int(struct call *call, uint32_t index) {
  double number = arg_number(call, index);
  /* Flags such as 0x80000000 arrive as positive numbers. */
  return number > INT_MIN && number <= UINT_MAX ? (int)(int64_t)number : 0;
}

const char *arg_text(struct call *call, uint32_t index) {
  /*
   * PATH_MAX counts the NUL: a path cut to this size is refused (ENAMETOOLONG), not taken for
   * another one.
   */
  static char texts[6][PATH_MAX + 1];
  char *text = texts[index % 6];
  text[0] = 0;
  uint32_t value = arg(call, index);
  if (!value) return text;
  uint32_t chars = Z_quickjsZ_qjs_get_string_len(&engine, value, scratch);
  if (!chars) return text;
  uint32_t length = word(scratch);
  if (length > PATH_MAX) length = PATH_MAX;
  memcpy(text, at(chars), length);
  text[length] = 0;
  Z_quickjsZ_qjs_free_cstring(&engine, chars);
  return text;
}

struct bytes arg_bytes(struct call *call, uint32_t index) {
  struct bytes none = {NULL, 0};
  uint32_t value = arg(call, index);
  if (!value) return none;
  uint32_t buffer = Z_quickjsZ_qjs_get_typed_array_buffer(&engine, value, scratch, scratch + 4, scratch + 8);
  struct bytes found = none;
  if (!Z_quickjsZ_qjs_is_exception(&engine, buffer)) {
    uint32_t offset = word(scratch), length = word(scratch + 4);
    uint32_t data = Z_quickjsZ_qjs_get_array_buffer(&engine, buffer, scratch + 12);
    if (data) found = (struct bytes){at(data + offset), length};
  }
  Z_quickjsZ_qjs_free_value(&engine, buffer);
  return found;
}

double or_errno(long result) { return result < 0 ? -(double)errno : (double)result; }

double milliseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* --- text ------------------------------------------------------------------------------------- */

/* Most text is ASCII, where characters and bytes are the same; what is not is for core/utf8.ts. */
static int is_ascii(const uint8_t *bytes, uint32_t length) {
  uint8_t all = 0;
  for (uint32_t i = 0; i < length; i++) all |= bytes[i];
  return all < 0x80;
}

/* asciiText(bytes): the text, or undefined. */
static uint32_t ascii_text(struct call *call) {
  struct bytes bytes = arg_bytes(call, 0);
  if (!is_ascii(bytes.data, bytes.length)) return Z_quickjsZ_qjs_get_undefined(&engine);
  uint32_t chars = bytes.length > 0 ? (uint32_t)(bytes.data - at(0)) : scratch;
  return Z_quickjsZ_qjs_new_string(&engine, chars, bytes.length);
}

/* asciiBytes(text): the bytes, or undefined. */
static uint32_t ascii_bytes(struct call *call) {
  uint32_t chars = Z_quickjsZ_qjs_get_string_len(&engine, arg(call, 0), scratch);
  if (!chars) return Z_quickjsZ_qjs_get_undefined(&engine);
  uint32_t length = word(scratch);
  uint32_t result = is_ascii(at(chars), length) ? Z_quickjsZ_qjs_new_uint8_array(&engine, chars, length)
                                                : Z_quickjsZ_qjs_get_undefined(&engine);
  Z_quickjsZ_qjs_free_cstring(&engine, chars);
  return result;
}

/* countOpeners(bytes): how many lists and objects a JSON text opens, at most. */
static uint32_t count_openers(struct call *call) {
  struct bytes bytes = arg_bytes(call, 0);
  uint32_t count = 0;
  for (uint32_t i = 0; i < bytes.length; i++) count += bytes.data[i] == '[' || bytes.data[i] == '{';
  return Z_quickjsZ_qjs_new_number(&engine, count);
}

/*
 * quoted(text): the text in quotes, as JSON has it, or undefined where a letter would have to be
 * escaped. The engine takes 380 instructions for a letter.
 */
static uint32_t quoted(struct call *call) {
  uint32_t chars = Z_quickjsZ_qjs_get_string_len(&engine, arg(call, 0), scratch);
  if (!chars) return Z_quickjsZ_qjs_get_undefined(&engine);
  uint32_t length = word(scratch), result = 0;
  const uint8_t *text = at(chars);
  char copy[128] = {'"'};
  if (length <= sizeof copy - 2) {
    uint32_t i = 0;
    for (; i < length && text[i] >= ' ' && text[i] < 0x7f && text[i] != '"' && text[i] != '\\'; i++)
      copy[i + 1] = (char)text[i];
    copy[length + 1] = '"';
    if (i == length) {
      uint32_t place = Z_quickjsZ_wasm_malloc(&engine, length + 2);
      memcpy(at(place), copy, length + 2);
      result = Z_quickjsZ_qjs_new_string(&engine, place, length + 2);
      Z_quickjsZ_wasm_free(&engine, place);
    }
  }
  Z_quickjsZ_qjs_free_cstring(&engine, chars);
  return result ? result : Z_quickjsZ_qjs_get_undefined(&engine);
}

/* --- netlink ---------------------------------------------------------------------------------- */

/*
 * indexAttributes(bytes, last): see linux/rtnetlink/attributes.ts. Answers 1, or 0 where a length
 * is wrong. A link has some fifty attributes, and each costs a hundred instructions in JavaScript
 * for one here.
 */
static uint32_t index_attributes(struct call *call) {
  struct bytes bytes = arg_bytes(call, 0), last = arg_bytes(call, 1);
  for (uint32_t place = 4; place <= bytes.length;) {
    uint16_t head[2]; /* size, type with flags */
    memcpy(head, bytes.data + place - 4, sizeof head);
    uint32_t type = head[1] & 0x3fff;
    if (head[0] < 4 || head[0] > bytes.length - (place - 4)) return Z_quickjsZ_qjs_new_number(&engine, 0);
    if (type < last.length / 4) memcpy(last.data + 4 * type, &place, sizeof place);
    place += (head[0] + 3u) & ~3u;
  }
  return Z_quickjsZ_qjs_new_number(&engine, 1);
}

/* --- imports of the engine -------------------------------------------------------------------- */

/* Functions that answer a value of the engine. */
static const struct {
  const char *name;
  uint32_t (*function)(struct call *call);
} value_functions[] = {
    {"asciiText", ascii_text},
    {"asciiBytes", ascii_bytes},
    {"indexAttributes", index_attributes},
    {"countOpeners", count_openers},
    {"quoted", quoted},
};
#define VALUE_FUNCTIONS (sizeof value_functions / sizeof *value_functions)

/*
 * The engine gives back the name that a function was made with: one letter, which is its number. A
 * search by name would cost more than most of the functions.
 */
enum { FIRST_LETTER = 0x20 };

static uint32_t size_of(const struct native *table) {
  uint32_t size = 0;
  while (table[size].name) size++;
  return size;
}

/* Functions that answer a number follow those of values. */
static const struct native *numbered(uint32_t number) {
  static uint32_t sys_size, process_size;
  if (!sys_size) sys_size = size_of(sys_functions), process_size = size_of(process_functions);
  if (number < sys_size) return sys_functions + number;
  return number - sys_size < process_size ? process_functions + (number - sys_size) : NULL;
}

u32 Z_envZ_host_call(struct Z_env_instance_t *env, u32 name, u32 length, u32 self, u32 argc, u32 argv) {
  (void)env, (void)self;
  struct call call = {argc, argv};
  uint32_t number = length == 1 ? at(name)[0] - (uint32_t)FIRST_LETTER : UINT32_MAX;
  if (number < VALUE_FUNCTIONS) return value_functions[number].function(&call);
  const struct native *found = number == UINT32_MAX ? NULL : numbered(number - VALUE_FUNCTIONS);
  return Z_quickjsZ_qjs_new_number(&engine, found ? found->function(&call) : -ENOSYS);
}

u32 Z_envZ_host_get_timezone_offset(struct Z_env_instance_t *env, u32 high, u32 low) {
  (void)env, (void)high, (void)low;
  return 0;
}
u32 Z_envZ_host_interrupt(struct Z_env_instance_t *env) { return (void)env, 0; }
u32 Z_envZ_host_module_load(struct Z_env_instance_t *env, u32 name, u32 out) {
  return (void)env, (void)name, (void)out, 0;
}
u32 Z_envZ_host_module_normalize(struct Z_env_instance_t *env, u32 base, u32 name) {
  return (void)env, (void)base, (void)name, 0;
}
void Z_envZ_host_promise_rejection(struct Z_env_instance_t *env, u32 promise, u32 reason, u32 handled) {
  (void)env, (void)handled;
  Z_quickjsZ_qjs_free_value(&engine, promise);
  Z_quickjsZ_qjs_free_value(&engine, reason);
}

u32 Z_wasi_snapshot_preview1Z_clock_time_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 clock,
                                             u64 precision, u32 out) {
  (void)wasi, (void)precision;
  struct timespec now;
  if (clock_gettime(clock == 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now) < 0) return 52;
  uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  memcpy(at(out), &ns, sizeof ns);
  return 0;
}

u32 Z_wasi_snapshot_preview1Z_fd_write(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd, u32 iovs,
                                       u32 count, u32 written) {
  (void)wasi;
  uint32_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t length = word(iovs + 8 * i + 4);
    if (write(fd == 1 ? 1 : 2, at(word(iovs + 8 * i)), length) < 0) break;
    total += length;
  }
  memcpy(at(written), &total, sizeof total);
  return 0;
}

u32 Z_wasi_snapshot_preview1Z_fd_close(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd) {
  return (void)wasi, (void)fd, 52;
}
u32 Z_wasi_snapshot_preview1Z_fd_fdstat_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd, u32 out) {
  return (void)wasi, (void)fd, (void)out, 8;
}
u32 Z_wasi_snapshot_preview1Z_fd_seek(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd, u64 offset,
                                      u32 whence, u32 out) {
  return (void)wasi, (void)fd, (void)offset, (void)whence, (void)out, 52;
}
u32 Z_wasi_snapshot_preview1Z_random_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 out, u32 length) {
  (void)wasi;
  /*
   * Never blocks: it seeds Math.random alone, and PID 1 starts before the kernel's pool is ready.
   */
  return getrandom(at(out), length, GRND_NONBLOCK) < 0 ? 6 : 0;
}

/* --- the program ------------------------------------------------------------------------------ */

static void report_exception(void) {
  uint32_t exception = Z_quickjsZ_qjs_get_exception(&engine);
  uint32_t chars = Z_quickjsZ_qjs_get_string_len(&engine, exception, scratch);
  uint32_t stack = Z_quickjsZ_qjs_get_prop_string(&engine, exception, text_in("stack"));
  uint32_t lines = Z_quickjsZ_qjs_get_string_len(&engine, stack, scratch);
  dprintf(2, "%s: %s\n%s", program_name, chars ? (char *)at(chars) : "exception", lines ? (char *)at(lines) : "");
  if (chars) Z_quickjsZ_qjs_free_cstring(&engine, chars);
  if (lines) Z_quickjsZ_qjs_free_cstring(&engine, lines);
  Z_quickjsZ_qjs_free_value(&engine, stack);
  Z_quickjsZ_qjs_free_value(&engine, exception);
}

/* Takes a result and frees it; reports it when it is an exception. */
static int succeeded(uint32_t result) {
  int failed = Z_quickjsZ_qjs_is_exception(&engine, result) != 0;
  if (failed) report_exception();
  Z_quickjsZ_qjs_free_value(&engine, result);
  return !failed;
}

static int run_jobs(void) {
  int ok = 1;
  while (Z_quickjsZ_qjs_is_job_pending(&engine))
    if ((int32_t)Z_quickjsZ_qjs_execute_pending_job(&engine) < 0) {
      report_exception();
      ok = 0;
    }
  return ok;
}

static void offer_one(uint32_t object, const char *text, uint32_t number) {
  /* A letter beyond ASCII would be more than one byte. */
  if (FIRST_LETTER + number > 0x7e) abort();
  const char letter[] = {(char)(FIRST_LETTER + number), 0};
  uint32_t function = Z_quickjsZ_qjs_new_host_function(&engine, text_in(letter), 1, 0);
  Z_quickjsZ_qjs_set_prop_string(&engine, object, text_in(text), function);
  Z_quickjsZ_qjs_free_value(&engine, function);
}

/* Answers the number after those of the table. */
static uint32_t offer(uint32_t object, const struct native *table, uint32_t number) {
  for (; table->name; table++) offer_one(object, table->name, number++);
  return number;
}

uint32_t start_engine(const uint8_t *bytecode, uint32_t length) {
  wasm_rt_init();
  Z_quickjs_init_module();
  Z_quickjs_instantiate(&engine, NULL, NULL);
  Z_quickjsZ__initialize(&engine);
  if (Z_quickjsZ_qjs_init(&engine)) return 0;
  Z_quickjsZ_qjs_set_memory_limit(&engine, 48u << 20);
  /* Counted references free nearly everything at once; cycles may wait. */
  Z_quickjsZ_qjs_set_gc_threshold(&engine, 1u << 20);
  scratch = Z_quickjsZ_wasm_malloc(&engine, 128);
  memset(at(scratch), 0, 128);

  uint32_t global = Z_quickjsZ_qjs_get_global(&engine);
  uint32_t sys = Z_quickjsZ_qjs_new_object(&engine);
  offer(sys, process_functions, offer(sys, sys_functions, VALUE_FUNCTIONS));
  for (uint32_t i = 0; i < VALUE_FUNCTIONS; i++) offer_one(global, value_functions[i].name, i);
  Z_quickjsZ_qjs_set_prop_string(&engine, global, text_in("podnetSys"), sys);
  Z_quickjsZ_qjs_free_value(&engine, sys);

  uint32_t code = Z_quickjsZ_wasm_malloc(&engine, length);
  memcpy(at(code), bytecode, length);
  int ok = succeeded(Z_quickjsZ_qjs_eval_bytecode(&engine, code, length));
  Z_quickjsZ_wasm_free(&engine, code);
  return ok && run_jobs() ? global : 0;
}

uint32_t function_named(uint32_t global, const char *name) {
  return Z_quickjsZ_qjs_get_prop_string(&engine, global, text_in(name));
}

int call_function(uint32_t function) {
  /* `this` is the function itself: any value does, and this one is at hand. */
  int calm = succeeded(Z_quickjsZ_qjs_call(&engine, function, function, 0, 0));
  return calm & run_jobs();
}
