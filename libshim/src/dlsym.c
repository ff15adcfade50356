/* dlsym and dlvsym: whoever looks a hooked function up gets the hook; every other question reaches the next dlsym.
 *
 * Ours must not appear between the caller and the loader: for RTLD_NEXT, and to find the caller's namespace, the
 * loader looks at the return address. So the entry points are a few instructions that jump on with registers and
 * stack as they came. Names that do not start with "cu" or "nv" cost two loads and compares.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdint.h>

#include "elf_lookup.h"
#include "loader.h"

/* Where the entry points jump on to; 0 until looked for. Hidden, so that the assembly reaches them directly. */
__attribute__((visibility("hidden"))) void *aq_next_dlsym, *aq_next_dlvsym;

void *aq_find_next_dlsym(void);
void *aq_find_next_dlvsym(void);
void *aq_dlsym_answer(void *handle, const char *symbol);
void *aq_dlvsym_answer(void *handle, const char *symbol, const char *version);

static void *find_next(void **into, const char *name) {
  void *found = aq_elf_next(&aq_next_dlsym, NULL, name);
  __atomic_store_n(into, found, __ATOMIC_RELAXED);
  return found;
}

void *aq_find_next_dlsym(void) { return find_next(&aq_next_dlsym, "dlsym"); }
void *aq_find_next_dlvsym(void) { return find_next(&aq_next_dlvsym, "dlvsym"); }

/* The hook to give for this question, or NULL: ask the next dlsym. Nobody gets a hook of a function which the driver
 * lacks, nor one for a forwarder's, which leads to a hook itself: perhaps to that of another namespace's copy of us,
 * and then both would count. Where the caller's place in the load order would decide, the loaded driver is asked. */
static void *answer(void *handle, const char *symbol, const char *version) {
  const aq_hook *row = aq_hook_by_symbol(symbol);
  if (!row) return NULL;
  bool special = handle == RTLD_NEXT || handle == RTLD_DEFAULT;
  void *library = special ? aq_loaded_library(symbol) : handle;
  if (!library) return NULL;
  void *found = version ? aq_real_dlvsym(library, symbol, version) : aq_real_dlsym(library, symbol);
  if (found == row->hook) return found;
  if (!found || aq_is_forwarder(found)) return NULL;
  aq_loader_learn(library, symbol);
  return row->hook;
}

void *aq_dlsym_answer(void *handle, const char *symbol) { return answer(handle, symbol, NULL); }

void *aq_dlvsym_answer(void *handle, const char *symbol, const char *version) {
  return version ? answer(handle, symbol, version) : NULL;
}

#if defined(__x86_64__)
/* Arguments: rdi handle, rsi symbol, rdx version. r11 is free for us. */
#define ENTRY_POINT(name)                                      \
  __asm__(                                                     \
      ".text\n.p2align 4\n.globl " #name                       \
      "\n.type " #name ", @function\n" #name                   \
      ":\n"                                                    \
      "  .cfi_startproc\n"                                     \
      "  endbr64\n"                                            \
      "  movq aq_next_" #name                                  \
      "(%rip), %r11\n"                                         \
      "  testq %r11, %r11\n  jz 3f\n"                          \
      "1: testq %rsi, %rsi\n  jz 2f\n"                         \
      "  cmpb $'c', (%rsi)\n  jne 5f\n"                        \
      "  cmpb $'u', 1(%rsi)\n  je 4f\n  jmp *%r11\n"           \
      "5: cmpb $'n', (%rsi)\n  jne 2f\n"                       \
      "  cmpb $'v', 1(%rsi)\n  je 4f\n"                        \
      "2: jmp *%r11\n"                                         \
      "3: pushq %rdi\n  pushq %rsi\n  pushq %rdx\n"            \
      "  .cfi_adjust_cfa_offset 24\n"                          \
      "  call aq_find_next_" #name                             \
      "\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"              \
      "  .cfi_adjust_cfa_offset -24\n"                         \
      "  movq %rax, %r11\n  testq %rax, %rax\n  jnz 1b\n  ret\n" \
      "4: pushq %rdi\n  pushq %rsi\n  pushq %rdx\n"            \
      "  .cfi_adjust_cfa_offset 24\n"                          \
      "  call aq_" #name                                       \
      "_answer\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"       \
      "  .cfi_adjust_cfa_offset -24\n"                         \
      "  testq %rax, %rax\n  jnz 6f\n"                         \
      "  movq aq_next_" #name                                  \
      "(%rip), %r11\n  jmp *%r11\n"                            \
      "6: ret\n"                                               \
      "  .cfi_endproc\n"                                       \
      ".size " #name ", .-" #name "\n")
#elif defined(__aarch64__)
/* Arguments: x0 handle, x1 symbol, x2 version. x9 to x17 are free for us. */
#define ENTRY_POINT(name)                                                                            \
  __asm__(                                                                                           \
      ".text\n.p2align 4\n.globl " #name "\n.type " #name ", %function\n" #name                      \
      ":\n"                                                                                          \
      "  .cfi_startproc\n"                                                                           \
      "  hint #34\n"                                                                                 \
      "  adrp x16, aq_next_" #name "\n  ldr x16, [x16, #:lo12:aq_next_" #name                        \
      "]\n"                                                                                          \
      "  cbz x16, 3f\n"                                                                              \
      "1: cbz x1, 2f\n"                                                                              \
      "  ldrb w9, [x1]\n  cmp w9, #'c'\n  b.ne 5f\n"                                                 \
      "  ldrb w9, [x1, #1]\n  cmp w9, #'u'\n  b.eq 4f\n  br x16\n"                                   \
      "5: cmp w9, #'n'\n  b.ne 2f\n"                                                                 \
      "  ldrb w9, [x1, #1]\n  cmp w9, #'v'\n  b.eq 4f\n"                                             \
      "2: br x16\n"                                                                                  \
      "3: stp x29, x30, [sp, #-48]!\n  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                 \
      "  bl aq_find_next_" #name                                                                     \
      "\n  mov x16, x0\n  ldr x2, [sp, #32]\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #48\n"   \
      "  cbnz x16, 1b\n  mov x0, #0\n  ret\n"                                                        \
      "4: stp x29, x30, [sp, #-48]!\n  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                 \
      "  bl aq_" #name                                                                               \
      "_answer\n  mov x9, x0\n  ldr x2, [sp, #32]\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #48\n" \
      "  cbnz x9, 6f\n"                                                                              \
      "  adrp x16, aq_next_" #name "\n  ldr x16, [x16, #:lo12:aq_next_" #name                        \
      "]\n  br x16\n"                                                                                \
      "6: mov x0, x9\n  ret\n"                                                                       \
      "  .cfi_endproc\n"                                                                             \
      ".size " #name ", .-" #name "\n")
#else
#error "no entry points for this machine"
#endif

ENTRY_POINT(dlsym);
ENTRY_POINT(dlvsym);
