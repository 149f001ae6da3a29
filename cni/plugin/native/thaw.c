#define _GNU_SOURCE
#include "frozen.h"

#include <sys/mman.h>

#include "frozen-numbers.h"
#include "inside.h"
#include "thaw.h"

/* Whole pages of its own, so that they can be moved without anything else. */
__asm__(".section .frozen,\"aw\",@progbits\n"
        ".balign 4096\n"
        ".globl frozen_begin\nfrozen_begin:\n"
        ".incbin \"frozen.bin\"\n"
        ".balign 4096\n"
        ".globl frozen_end\nfrozen_end:\n"
        ".previous\n");
extern char frozen_begin[], frozen_end[];

uint32_t thaw(void) {
  wasm_rt_init();
  thaw_instance(&engine, FROZEN_PAGES, FROZEN_STACK);
  /* Moved, not copied: the kernel maps the executable's own pages where the engine's memory is. */
  size_t length = (size_t)(frozen_end - frozen_begin);
  void *place = engine.w2c_memory.data + FROZEN_STACK;
  if (mremap(frozen_begin, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) return 0;
  scratch = FROZEN_SCRATCH;
  return FROZEN_FUNCTION;
}
