#define _GNU_SOURCE
#include "frozen.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

static int write_file(const char *path, const void *bytes, size_t length) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return 0;
  int whole = write(fd, bytes, length) == (ssize_t)length;
  return close(fd) == 0 && whole;
}

int freeze(uint32_t function, const char *image, const char *numbers) {
  Z_quickjsZ_qjs_run_gc(&engine);
  const wasm_rt_memory_t *memory = &engine.w2c_memory;
  /* The stack is at the bottom of the memory, grows down, and is empty between calls. */
  uint32_t stack = engine.w2c___stack_pointer, end = memory->size;
  while (end > stack && memory->data[end - 1] == 0) end--;
  char text[160];
  snprintf(text, sizeof text, "#define FROZEN_PAGES %uu\n#define FROZEN_STACK %uu\n#define FROZEN_SCRATCH %uu\n#define FROZEN_FUNCTION %uu\n",
           memory->pages, stack, scratch, function);
  return write_file(image, memory->data + stack, end - stack) && write_file(numbers, text, strlen(text));
}
